"""Training rows by number, parts of them, and how often ids occur in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from cce.checks import check_range, check_type
from cce.distributed import Ranks, sum_over_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from cce.schema import Batch

GOLDEN, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64
READ_ROWS = 1 << 16  # at a time, while ids are counted


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

    def numbers(self, num_rows: int) -> np.ndarray:
        """The numbers of its rows, of so many."""
        return np.flatnonzero(self.mask(np.arange(num_rows)))


ALL_ROWS, ALONE = Fold(0, 1), Ranks()


def pieces(num_rows: int, fold: Fold, size: int, ranks: Ranks = ALONE) -> Iterator[np.ndarray]:
    """The numbers of a fold's rows, those of `size` rows at a time; of several processes each has a share of them."""
    size *= ranks.world_size
    for start in range(0, num_rows, size):
        numbers = np.arange(start, min(start + size, num_rows))
        numbers = numbers if fold.num_folds == 1 else numbers[fold.mask(numbers)]
        numbers = numbers[ranks.rank :: ranks.world_size]
        if len(numbers):
            yield numbers


def blocks_of_rows(
    rows: Rows, feature: int, blocks: np.ndarray, fold: Fold = ALL_ROWS, ranks: Ranks = ALONE
) -> np.ndarray | None:
    """For each row the block of its id, `blocks[id]`, if it is in the fold and this process's; else the largest value.

    None if rows have bags of ids, which may be of several blocks.
    """
    found = np.full(len(rows), np.iinfo(blocks.dtype).max, blocks.dtype)
    for numbers in pieces(len(rows), fold, READ_ROWS, ranks):
        batch = rows.fetch(numbers)
        if batch.offsets is not None:
            return None
        found[numbers] = blocks[batch.ids[:, feature].numpy()]
    return found


def count_ids(rows: Rows, num_ids: Mapping[int, int], fold: Fold = ALL_ROWS, ranks: Ranks = ALONE) -> dict[int, Tensor]:
    """How often each id occurs in the rows of a fold, for features by their column and number of ids."""
    counts = {feature: torch.zeros(size, dtype=torch.int64) for feature, size in num_ids.items()}
    for numbers in pieces(len(rows), fold, READ_ROWS, ranks):
        batch = rows.fetch(numbers)
        for feature, count in counts.items():
            ids, _ = bags_of(batch, feature)
            count.add_(torch.bincount(ids, minlength=len(count)))
    return {feature: sum_over_ranks(count, ranks) for feature, count in counts.items()}


def bags_of(batch: Batch, feature: int) -> tuple[Tensor, Tensor]:
    """The ids of a feature, row after row, and how many each row has."""
    if batch.offsets is None:
        return batch.ids[:, feature], torch.ones(len(batch), dtype=torch.int64)
    bounds = batch.offsets[feature * len(batch) : (feature + 1) * len(batch) + 1]
    return batch.ids[int(bounds[0]) : int(bounds[-1])], bounds.diff()
