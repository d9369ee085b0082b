"""What a forward pass of compiled loops saves for its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.kernels.cpu.deduplicate import CHUNK
from cce.kernels.cpu.rows import BLOCK

if TYPE_CHECKING:
    from cce.kernels.cpu.plan import LaunchPlan

Array = np.ndarray[Any, Any]

NO_WEIGHTS = np.empty(0, np.float64)
NO_ROWS, NO_NAMES, NOTHING_LISTED = np.empty(0, np.int32), np.empty(0, np.uint16), np.empty((0, 0), np.int64)


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


class SavedForBackward(NamedTuple):
    """The rows that a batch was made of, slot by slot in blocks (see `rows`), feature after feature."""

    plan: LaunchPlan
    dtype: torch.dtype
    sums: torch.dtype  # that gradients are summed in
    batch: int
    shape: Sequence[int]  # of the vectors
    bags: Bags | None
    rows: Array
    starts: Array  # of each feature's rows
    names: Array  # (features · batch), uint16: which entry of its chunk's list an id is; empty if nothing is listed
    listed: Array  # (features, chunks): how long the list is, 0 where ids were looked up one by one

    @property
    def counts(self) -> list[int]:
        """Ids of each feature."""
        return count_ids(self.plan, self.batch, self.bags)

    @property
    def sizes(self) -> Array:
        """How many ids have rows, `(features, chunks)`; without lists there is one chunk."""
        if not len(self.names):
            return np.array(self.counts, np.int64).reshape(-1, 1)
        whole = np.minimum(CHUNK, self.batch - np.arange(0, self.batch, CHUNK, dtype=np.int64))
        return np.where(self.listed > 0, self.listed, whole)

    def listed_rows(self, place: int) -> list[Array]:
        """The rows `(size, slots)` of each chunk of a feature."""
        slots, start = self.plan.num_slots[place], int(self.starts[place])
        return [
            _out_of_blocks(self.rows, start + chunk * CHUNK * slots, int(size), slots)
            for chunk, size in enumerate(self.sizes[place])
        ]

    def rows_by_id(self, place: int) -> Array:
        """The rows `(count, slots)` of every id of a feature."""
        listed = self.listed_rows(place)
        if len(listed) and len(self.names):
            first = place * self.batch
            for chunk, size in enumerate(self.listed[place]):
                if size:
                    begin, end = first + chunk * CHUNK, first + min(self.batch, (chunk + 1) * CHUNK)
                    listed[chunk] = listed[chunk][self.names[begin:end]]
        return np.concatenate(listed) if listed else np.empty((0, self.plan.num_slots[place]), np.int32)


def count_ids(plan: LaunchPlan, batch: int, bags: Bags | None) -> list[int]:
    """How many ids each feature has."""
    if bags is None:
        return [batch] * plan.num_features
    ends = bags.offsets[::batch] if batch else bags.offsets.new_zeros(plan.num_features + 1)
    counts: list[int] = ends.diff().tolist()
    return counts


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.zeros` on this thread alone: torch wakes its others from 32,768 values on, and waits for them."""
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype is torch.float64 else np.float32))


def into_blocks(rows: Array, size: int) -> Array:
    """Rows `(count, slots)` slot by slot, in blocks with room for `size` ids."""
    padded = np.full((size, rows.shape[1]), -1, np.int32)
    padded[: len(rows)] = rows
    return padded.reshape(-1, BLOCK, rows.shape[1]).transpose(0, 2, 1).reshape(-1)


def _out_of_blocks(rows: Array, start: int, count: int, num_slots: int) -> Array:
    size = -(-count // BLOCK) * BLOCK * num_slots
    blocks = rows[start : start + size].reshape(-1, num_slots, BLOCK)
    return blocks.transpose(0, 2, 1).reshape(-1, num_slots)[:count]
