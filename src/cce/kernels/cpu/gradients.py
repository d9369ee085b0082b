"""Gradients of codebooks from gradients of vectors: dense, or sparse.

`SavedForBackward` is what a forward pass of compiled loops saves for them, and `Bags` what it may be given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import KINDS, parallel_for, scratch
from cce.kernels.cpu import loops

if TYPE_CHECKING:
    from cce.kernels.cpu.plan import LaunchPlan, WorkShare

Array = np.ndarray[Any, Any]

PARALLEL_SLOTS = 1 << 18  # below this many rows to fetch, handing work to threads costs more than it saves
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


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.zeros` on this thread alone: torch wakes its others from 32,768 values on, and waits for them."""
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype is torch.float64 else np.float32))


def dense_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """As large as the codebooks."""
    sums, dtype = saved.sums, saved.dtype
    tables = [zeros(shape, sums) if need else None for shape, need in zip(saved.plan.shapes, needed, strict=True)]
    addresses = np.array([0 if table is None else table.data_ptr() for table in tables], np.int64)
    _scatter(saved, grad, saved.rows, addresses, needed)
    return tables if dtype is sums else [table if table is None else table.to(dtype) for table in tables]


def sparse_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """Coalesced: the rows that were used, and their sums."""
    plan, numbered = saved.plan, np.empty_like(saved.rows)
    used = [_number_rows(saved, place, numbered) if need else saved.rows[:0] for place, need in enumerate(needed)]
    shapes = [(len(rows), width) for rows, (_, width) in zip(used, plan.shapes, strict=True)]
    ends = np.cumsum([0, *(num_rows * width for num_rows, width in shapes)])
    values = zeros((int(ends[-1]),), saved.sums)
    _scatter(saved, grad, numbered, values.data_ptr() + ends[:-1] * values.itemsize, needed)
    parts = torch.split(values.to(saved.dtype), np.diff(ends).tolist())
    return [
        torch.sparse_coo_tensor(
            torch.from_numpy(rows).unsqueeze(0), part.view(own), shape, check_invariants=False, is_coalesced=True
        )
        if need
        else None
        for rows, part, own, shape, need in zip(used, parts, shapes, plan.shapes, needed, strict=True)
    ]


def _number_rows(saved: SavedForBackward, place: int, numbered: Array) -> Array:
    """The rows that a feature used, rising; `numbered` gets the index of each among them."""
    count, num_slots, (num_rows, _) = saved.counts[place], saved.plan.num_slots[place], saved.plan.shapes[place]
    used = np.empty(min(count * num_slots, num_rows), np.int64)
    start = int(saved.starts[place])
    return used[: loops.number_rows(saved.rows, start, count, num_slots, num_rows, numbered, used)]


def _scatter(saved: SavedForBackward, grad: Tensor, rows: Array, addresses: Array, needed: Sequence[bool]) -> None:
    """Sum gradients into the rows of the tables at `addresses`, of those that are needed."""
    if grad.dtype is not saved.sums or not grad.is_contiguous():
        grad = grad.to(saved.sums).contiguous()
    plan, item = saved.plan, grad.itemsize
    wanted = None if all(needed) else np.array(needed)
    known = (saved.batch, rows, saved.starts, *(NO_BAGS if saved.bags is None else saved.bags.arrays()))
    upstream = (grad.data_ptr(), plan.dim * item, item)

    def run(share: WorkShare) -> None:
        workspace = scratch("vectors", plan.block_values * item, np.uint8)
        for special, features, units in share:
            own = units if wanted is None else units[wanted[features["place"][units["feature"]]]]
            loops.scatter(features, own, known, workspace, addresses, upstream, KINDS[grad.dtype], special)

    shares = plan.work_shares(torch.get_num_threads() if len(rows) >= PARALLEL_SLOTS else 1)
    if len(shares) == 1:
        run(shares[0])
    else:
        parallel_for(lambda index: run(shares[index]), len(shares))
