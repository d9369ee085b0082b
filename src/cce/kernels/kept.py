"""What a forward pass of compiled loops keeps for its backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.kernels.compiled_merge import CHUNK
from cce.kernels.compiled_rows import BLOCK

if TYPE_CHECKING:
    from torch import Tensor

    from cce.kernels.layout import Program

Array = np.ndarray[Any, Any]

NO_WEIGHTS = np.empty(0, np.float64)


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


@dataclass(frozen=True)
class Merged:
    """Which ids of a batch were composed once for several places: see `compiled_merge`."""

    names: Array  # (features · batch), uint16: the place of each id in the list of its chunk; empty if none is merged
    listed: Array  # (features, chunks): how long the list is, 0 where ids were looked up one by one

    @classmethod
    def none(cls) -> Merged:
        """Nothing is merged."""
        return cls(np.empty(0, np.uint16), np.empty((0, 0), np.int64))

    @classmethod
    def room(cls, num_features: int, batch: int, *, keep: bool) -> Merged:
        """Room for all names, or for those of a chunk."""
        listed = np.zeros((num_features, -(-batch // CHUNK)), np.int64)
        return cls(np.empty(num_features * batch if keep else min(batch, CHUNK), np.uint16), listed)


@dataclass(frozen=True)
class Kept:
    """The rows that a batch was made of, slot by slot in blocks (see `compiled_rows`), feature after feature."""

    program: Program
    bags: Bags | None
    rows: Array
    starts: Array  # of each feature's rows
    merged: Merged
    batch: int
    dtype: torch.dtype

    @property
    def counts(self) -> list[int]:
        """Ids of each feature."""
        return count_ids(self.program, self.batch, self.bags)

    @property
    def sums(self) -> torch.dtype:
        """The type that gradients are summed in."""
        return sum_type(self.dtype)

    @property
    def sizes(self) -> Array:
        """How many ids have rows, `(features, chunks)`; without merging there is one chunk."""
        if self.bags is not None or not len(self.merged.names):
            return np.array(self.counts, np.int64).reshape(-1, 1)
        whole = np.minimum(CHUNK, self.batch - np.arange(0, self.batch, CHUNK, dtype=np.int64))
        return np.where(self.merged.listed > 0, self.merged.listed, whole)

    def listed_rows(self, place: int) -> list[Array]:
        """The rows `(size, slots)` of each chunk."""
        slots, start = self.program.num_slots[place], int(self.starts[place])
        return [
            _out_of_blocks(self.rows, start + chunk * CHUNK * slots, int(size), slots)
            for chunk, size in enumerate(self.sizes[place])
        ]

    def rows_by_id(self, place: int) -> Array:
        """The rows `(count, slots)` of every id of a feature, merged or not."""
        listed = self.listed_rows(place)
        if len(listed) and len(self.merged.names):
            first = place * self.batch
            for chunk, size in enumerate(self.merged.listed[place]):
                if size:
                    begin, end = first + chunk * CHUNK, first + min(self.batch, (chunk + 1) * CHUNK)
                    listed[chunk] = listed[chunk][self.merged.names[begin:end]]
        return np.concatenate(listed) if listed else np.empty((0, self.program.num_slots[place]), np.int32)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type that numbers of `dtype` are summed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """`torch.zeros`, on this thread alone: torch wakes its others from 32,768 numbers on, and waits for them."""
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype is torch.float64 else np.float32))


def count_ids(program: Program, batch: int, bags: Bags | None) -> list[int]:
    """How many ids each feature has."""
    if bags is None:
        return [batch] * program.num_features
    ends = bags.offsets[::batch] if batch else bags.offsets.new_zeros(program.num_features + 1)
    counts: list[int] = ends.diff().tolist()
    return counts


def into_blocks(rows: Array, size: int) -> Array:
    """Rows `(count, slots)` slot by slot, in blocks with room for `size` ids."""
    padded = np.full((size, rows.shape[1]), -1, np.int32)
    padded[: len(rows)] = rows
    return padded.reshape(-1, BLOCK, rows.shape[1]).transpose(0, 2, 1).reshape(-1)


def _out_of_blocks(rows: Array, start: int, count: int, num_slots: int) -> Array:
    size = -(-count // BLOCK) * BLOCK * num_slots
    blocks = rows[start : start + size].reshape(-1, num_slots, BLOCK)
    return blocks.transpose(0, 2, 1).reshape(-1, num_slots)[:count]
