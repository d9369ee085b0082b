"""What a forward pass of compiled loops is given in bags, and what it saves for its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.kernels.cpu.rows import BLOCK

if TYPE_CHECKING:
    from cce.kernels.cpu.plan import LaunchPlan

Array = np.ndarray[Any, Any]

NO_WEIGHTS = np.empty(0, np.float64)
NO_BAGS = np.empty(0, np.int64), NO_WEIGHTS


@dataclass(frozen=True)
class Bags:
    """Many ids for each feature and example: bag `b` of feature `f` is `offsets[f · batch + b : … + 1]` of the ids."""

    offsets: Tensor  # (num_features · batch + 1), int64
    batch: int
    weights: Tensor | None = None  # one for each id

    def arrays(self) -> tuple[Array, Array]:
        """Offsets and weights for compiled loops."""
        weights = NO_WEIGHTS if self.weights is None else self.weights.detach().double().contiguous().numpy()
        return self.offsets.contiguous().numpy(), weights

    def counts(self, num_features: int) -> list[int]:
        """How many ids each feature has."""
        ends = self.offsets[:: self.batch] if self.batch else self.offsets.new_zeros(num_features + 1)
        counts: list[int] = ends.diff().tolist()
        return counts


class SavedForBackward(NamedTuple):
    """The rows that a batch was made of, slot by slot in blocks (see `rows`), feature after feature."""

    plan: LaunchPlan
    dtype: torch.dtype
    sums: torch.dtype  # that gradients are summed in
    batch: int
    bags: Bags | None
    rows: Array
    starts: Array  # of each feature's rows

    @property
    def counts(self) -> list[int]:
        """Ids of each feature."""
        num_features = self.plan.num_features
        return [self.batch] * num_features if self.bags is None else self.bags.counts(num_features)

    def rows_by_id(self, place: int) -> Array:
        """The rows `(count, slots)` of every id of a feature."""
        slots, start, count = self.plan.num_slots[place], int(self.starts[place]), self.counts[place]
        blocks = self.rows[start : start + -(-count // BLOCK) * BLOCK * slots].reshape(-1, slots, BLOCK)
        return blocks.transpose(0, 2, 1).reshape(-1, slots)[:count]


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.zeros` on this thread alone: torch wakes its others from 32,768 values on, and waits for them."""
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype is torch.float64 else np.float32))
