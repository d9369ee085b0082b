"""What a metric is: an accumulator that reads rows and gives one score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch

from cce.evaluation.rows import ScoredRows

if TYPE_CHECKING:
    from torch import Tensor


class Metric(ABC):
    """An accumulator: reads rows in any number of batches, then returns the score of all of them."""

    streaming: ClassVar[type[SummedMetric] | None] = None  # an approximation in bounded memory

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
