"""What a metric is: an accumulator that reads rows, which were checked before, and gives one score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class ScoredRows:
    """Rows as metrics read them. A group below 0 means none: the row is no part of metrics by group."""

    logits: Tensor  # (n), float
    labels: Tensor  # (n), 0 or 1
    weights: Tensor  # (n), at least 0
    groups: Tensor  # (n), int64

    @classmethod
    def of(
        cls, logits: Tensor, labels: Tensor, weights: Tensor | None = None, groups: Tensor | None = None
    ) -> ScoredRows:
        """Rows on the CPU; by default they have equal weights and belong to no group."""
        weights = torch.ones_like(logits) if weights is None else weights
        groups = torch.full(logits.shape, -1) if groups is None else groups
        return cls(logits.cpu(), labels.cpu(), weights.cpu(), groups.cpu())

    @classmethod
    def concatenate(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        """All rows of `parts`, of which there may be none."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of(torch.zeros(0), torch.zeros(0))
        columns = zip(*((part.logits, part.labels, part.weights, part.groups) for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, chosen: Tensor) -> ScoredRows:
        """Some of the rows, by index or by mask."""
        return ScoredRows(self.logits[chosen], self.labels[chosen], self.weights[chosen], self.groups[chosen])


def check_rows(logits: Tensor, labels: Tensor, weights: Tensor | None = None, *, first_row: int = 0) -> None:
    """Reject logits that are not finite, labels other than 0 and 1, and weights that are negative or not finite.

    first_row: position of the first of these rows in the whole split, for the message.
    """
    for name, values in (("labels", labels), ("weights", weights)):
        if values is not None and values.shape != logits.shape:
            raise ValueError(f"{name} must have the shape of logits, {list(logits.shape)}, got {list(values.shape)}.")
    _check("logits", "be finite", logits, torch.isfinite(logits), first_row)
    _check("labels", "be 0 or 1", labels, (labels == 0) | (labels == 1), first_row)
    if weights is not None:
        _check("weights", "be finite and at least 0", weights, torch.isfinite(weights) & (weights >= 0), first_row)


def _check(name: str, rule: str, values: Tensor, is_valid: Tensor, first_row: int) -> None:
    if bool(is_valid.all()):
        return
    wrong = torch.nonzero(~is_valid.flatten()).flatten()
    position = int(wrong[0])
    value, where = float(values.flatten()[position]), f"the first, at position {first_row + position:,},"
    raise ValueError(f"{name} must {rule}, got {len(wrong):,} of {values.numel():,} that are not; {where} is {value}.")


class Metric(ABC):
    """An accumulator: reads rows in any number of batches, then returns the score of all of them."""

    @abstractmethod
    def add(self, rows: ScoredRows) -> None:
        """Read some rows."""

    @abstractmethod
    def compute(self) -> float:
        """The score of all rows so far; NaN where it is not defined."""


class SummedMetric(Metric):
    """A metric of sums, in bounded memory: `sums` of all rows is the sum of those of their parts, on any process."""

    num_sums: ClassVar[int]

    def __init__(self) -> None:
        self.sums = torch.zeros(self.num_sums, dtype=torch.float64)

    def add(self, rows: ScoredRows) -> None:
        """Add the sums of these rows."""
        self.sums += self.sums_of(rows)

    @abstractmethod
    def sums_of(self, rows: ScoredRows) -> Tensor:
        """The sums of some rows, `(num_sums)`, in double precision."""


class WholeMetric(Metric):
    """A metric that needs all rows at once, such as to rank them: they are stored."""

    def __init__(self) -> None:
        self._kept: list[ScoredRows] = []

    def add(self, rows: ScoredRows) -> None:
        """Keep these rows."""
        self._kept.append(rows)

    def compute(self) -> float:
        """The score of all rows so far."""
        return self.score(ScoredRows.concatenate(self._kept))

    @abstractmethod
    def score(self, rows: ScoredRows) -> float:
        """The score of these rows; NaN where it is not defined."""
