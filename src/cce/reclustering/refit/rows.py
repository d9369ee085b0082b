"""The rows in which each id of a feature occurs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from cce.checks import check_range, check_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from cce.schema import Batch

GOLDEN, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64
READ_ROWS = 1 << 16  # at a time, while the index is made


class Rows(Protocol):
    """Training rows by number, as `PreparedData.rows("train")` gives them."""

    def __len__(self) -> int:
        """How many rows there are."""

    def fetch(self, rows: np.ndarray) -> Batch:
        """The rows with these numbers, in this order."""


def check_rows(rows: Rows) -> None:
    """Reject what has no rows, or cannot fetch them."""
    if not callable(getattr(rows, "fetch", None)) or not hasattr(rows, "__len__"):
        check_type("rows", rows, type(None), "an object with len(rows) and rows.fetch(numbers), as PreparedData.rows")
    check_range("number of rows", len(rows), 1, 2**63)


@dataclass(frozen=True)
class RowIndex:
    """For each id of one feature, the numbers of its rows: `order[starts[x] : starts[x + 1]]`.

    A row whose bag holds an id twice is there twice.
    """

    feature: int  # the column of a batch's ids
    order: np.ndarray  # (occurrences) int32 or int64
    starts: np.ndarray  # (num_ids + 1) int64

    @classmethod
    def of(cls, rows: Rows, feature: int, num_ids: int, *, fold: Fold | None = None) -> RowIndex:
        """Index the rows of a fold, or all of them, in two passes over the ids: count, then place."""
        starts = np.zeros(num_ids + 1, np.int64)
        for _, ids in _occurrences(rows, feature, fold):
            np.add.at(starts, ids + 1, 1)
        np.cumsum(starts, out=starts)
        order = np.empty(starts[-1], np.int32 if len(rows) <= 2**31 else np.int64)
        free = starts[:-1].copy()
        for numbers, found in _occurrences(rows, feature, fold):
            by_id = np.argsort(found, kind="stable")
            ids = found[by_id]
            firsts = np.flatnonzero(np.diff(ids, prepend=-1))
            lengths = np.diff(firsts, append=len(ids))
            order[free[ids] + np.arange(len(ids)) - np.repeat(firsts, lengths)] = numbers[by_id]
            free[ids[firsts]] += lengths
        return cls(feature, order, starts)

    @property
    def counts(self) -> Tensor:
        """In how many rows each id occurs."""
        return torch.from_numpy(np.diff(self.starts))

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.order.nbytes + self.starts.nbytes

    def rows_of(self, ids: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the rows of ids `(n)`, id after id, and where each begins `(n + 1)`."""
        begins, lengths = self.starts[ids.numpy()], self.counts.numpy()[ids.numpy()]
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        positions = np.repeat(begins - bounds[:-1], lengths) + np.arange(bounds[-1])
        return self.order[positions].astype(np.int64), bounds

    def blocks(self, ids: Tensor, max_rows: int) -> Iterator[Tensor]:
        """Cut ids into stretches of at most so many rows; an id that has more comes alone."""
        ends = np.cumsum(self.counts.numpy()[ids.numpy()])
        first, done = 0, 0
        while first < len(ids):
            last = max(int(np.searchsorted(ends, done + max_rows, side="right")), first + 1)
            yield ids[first:last]
            first, done = last, int(ends[last - 1])


@dataclass(frozen=True)
class Fold:
    """One of `num_folds` parts of the rows, which a hash of the row's number decides."""

    part: int
    num_folds: int

    def __contains__(self, row: int) -> bool:
        return bool(self.mask(np.array([row]))[0])

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Which of the rows belong to it."""
        mixed = (rows.astype(np.uint64) + np.uint64(1)) * GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * MIX
        mixed ^= mixed >> np.uint64(27)
        part = (mixed >> np.uint64(32)) * np.uint64(self.num_folds) >> np.uint64(32)
        found: np.ndarray = part == self.part
        return found


def _occurrences(rows: Rows, feature: int, fold: Fold | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers and ids of the feature in them, block by block."""
    for start in range(0, len(rows), READ_ROWS):
        numbers = np.arange(start, min(start + READ_ROWS, len(rows)))
        if fold is not None:
            numbers = numbers[fold.mask(numbers)]
        if len(numbers):
            ids, lengths = bags_of(rows.fetch(numbers), feature)
            yield np.repeat(numbers, lengths.numpy()), ids.numpy()


def bags_of(batch: Batch, feature: int) -> tuple[Tensor, Tensor]:
    """The ids of a feature, row after row, and how many each row has."""
    if batch.offsets is None:
        return batch.ids[:, feature], torch.ones(len(batch), dtype=torch.int64)
    bounds = batch.offsets[feature * len(batch) : (feature + 1) * len(batch) + 1]
    return batch.ids[int(bounds[0]) : int(bounds[-1])], bounds.diff()
