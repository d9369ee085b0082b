"""Metrics: accumulators that read rows, which were checked before, and give one score.

Whether predicted probabilities are right: binary cross-entropy, the loss of the paper's models, also relative to a
constant prediction; and calibration, on the whole and bin by bin. How well rows are ranked: AUC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class ScoredRows:
    """Rows as metrics read them."""

    logits: Tensor  # (n), float
    labels: Tensor  # (n), 0 or 1
    weights: Tensor  # (n), at least 0

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> ScoredRows:
        """Rows on the CPU; by default they have equal weights."""
        weights = torch.ones_like(logits) if weights is None else weights
        return cls(logits.cpu(), labels.cpu(), weights.cpu())

    @classmethod
    def concatenate(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        """All rows of `parts`, of which there may be none."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of(torch.zeros(0), torch.zeros(0))
        columns = zip(*((part.logits, part.labels, part.weights) for part in parts), strict=True)
        return cls(*(torch.cat(column) for column in columns))

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, chosen: Tensor) -> ScoredRows:
        """Some of the rows, by index or by mask."""
        return ScoredRows(self.logits[chosen], self.labels[chosen], self.weights[chosen])


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


class BinaryCrossEntropy(SummedMetric):
    """The mean of `-log p(label)`."""

    num_sums = 2  # loss, weight

    def sums_of(self, rows: ScoredRows) -> Tensor:
        """The weighted losses, and the weights."""
        return torch.stack([_loss(rows), rows.weights.double().sum()])

    def compute(self) -> float:
        """In nats."""
        return float(self.sums[0] / self.sums[1])


class NormalizedEntropy(SummedMetric):
    """BCE over that of a model that always predicts the mean label (He et al. 2014). Below 1 is better than that."""

    num_sums = 3  # loss, weight, weight of positives

    def sums_of(self, rows: ScoredRows) -> Tensor:
        """The weighted losses, the weights, and those of positives."""
        weights = rows.weights.double()
        return torch.stack([_loss(rows), weights.sum(), (weights * rows.labels).sum()])

    def compute(self) -> float:
        """NaN where all labels are equal: a constant then has no loss."""
        loss, weight, positive = self.sums
        rate = positive / weight
        entropy = -(torch.xlogy(rate, rate) + torch.xlogy(1 - rate, 1 - rate))
        return float(loss / weight / entropy) if entropy > 0 else float("nan")


def _loss(rows: ScoredRows) -> Tensor:
    losses = functional.binary_cross_entropy_with_logits(rows.logits.double(), rows.labels.double(), reduction="none")
    return (losses * rows.weights).sum()


NUM_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks"


class Calibration(SummedMetric):
    """The mean prediction over the mean label: 1 is right, above it the model promises too much."""

    num_sums = 2  # predictions, labels

    def sums_of(self, rows: ScoredRows) -> Tensor:
        """The weighted predictions and labels."""
        weights = rows.weights.double()
        return torch.stack([(weights * _probabilities(rows)).sum(), (weights * rows.labels).sum()])

    def compute(self) -> float:
        """NaN without positives."""
        predicted, observed = self.sums
        return float(predicted / observed) if observed > 0 else float("nan")


class ExpectedCalibrationError(SummedMetric):
    """The mean over rows of how far the mean prediction of a bin is from its mean label, in bins of equal width."""

    num_sums = 3 * NUM_BINS  # by bin: predictions, labels, weights

    def sums_of(self, rows: ScoredRows) -> Tensor:
        """The weighted predictions and labels of each bin, and its weight."""
        weights, predicted = rows.weights.double(), _probabilities(rows)
        bins = (predicted * NUM_BINS).long().clamp(max=NUM_BINS - 1)
        columns = torch.stack([weights * predicted, weights * rows.labels, weights])
        return torch.zeros(3, NUM_BINS, dtype=torch.float64).index_add_(1, bins, columns).flatten()

    def compute(self) -> float:
        """Between 0 and 1."""
        predicted, observed, weights = self.sums.view(3, NUM_BINS)
        return float((predicted - observed).abs().sum() / weights.sum())


def _probabilities(rows: ScoredRows) -> Tensor:
    return torch.sigmoid(rows.logits.double())


# -- ranking -----------------------------------------------------------------------------------------------------------


class AreaUnderCurve(WholeMetric):
    """AUC, exact: the share of (positive, negative) pairs in the right order, by weight; a tie counts half."""

    def score(self, rows: ScoredRows) -> float:
        """NaN where all labels are equal."""
        return _area(*_count_equal(rows))


def _count_equal(rows: ScoredRows) -> tuple[Tensor, Tensor]:
    """The weights of positives and negatives of each logit that occurs, from the lowest on."""
    logits, index = torch.unique(rows.logits, return_inverse=True)
    sums = []
    for kind in (rows.labels > 0.5, rows.labels <= 0.5):
        zeros = torch.zeros(len(logits), dtype=torch.float64)
        sums.append(zeros.index_add_(0, index[kind], rows.weights[kind].double()))
    return sums[0], sums[1]


def _area(positives: Tensor, negatives: Tensor) -> float:
    """The area, where each run of equal logits, from the lowest on, has this many positives and negatives."""
    below = negatives.cumsum(0) - negatives / 2
    return float((positives * below).sum() / (positives.sum() * negatives.sum()))
