"""Metrics: functions of rows, which were checked before, that give one score; NaN where it is not defined.

Whether predicted probabilities are right: binary cross-entropy, the loss of the paper's models, also relative to a
constant prediction; and calibration, on the whole and bin by bin. How well rows are ranked: AUC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


NUM_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks"


def binary_cross_entropy(rows: ScoredRows) -> float:
    """The mean of `-log p(label)`, in nats."""
    return float(_loss(rows) / rows.weights.double().sum())


def normalized_entropy(rows: ScoredRows) -> float:
    """BCE over that of a model that always predicts the mean label (He et al. 2014). Below 1 is better than that.

    NaN where all labels are equal: a constant then has no loss.
    """
    weights = rows.weights.double()
    rate = (weights * rows.labels).sum() / weights.sum()
    entropy = -(torch.xlogy(rate, rate) + torch.xlogy(1 - rate, 1 - rate))
    return float(_loss(rows) / weights.sum() / entropy) if entropy > 0 else float("nan")


def _loss(rows: ScoredRows) -> Tensor:
    losses = functional.binary_cross_entropy_with_logits(rows.logits.double(), rows.labels.double(), reduction="none")
    return (losses * rows.weights).sum()


def calibration(rows: ScoredRows) -> float:
    """The mean prediction over the mean label: above 1 the model promises too much. NaN without positives."""
    weights = rows.weights.double()
    observed = (weights * rows.labels).sum()
    predicted = (weights * torch.sigmoid(rows.logits.double())).sum()
    return float(predicted / observed) if observed > 0 else float("nan")


def expected_calibration_error(rows: ScoredRows) -> float:
    """The mean over rows of how far the mean prediction of a bin is from its mean label, in bins of equal width."""
    weights, predicted = rows.weights.double(), torch.sigmoid(rows.logits.double())
    bins = (predicted * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    gaps = torch.zeros(NUM_BINS, dtype=torch.float64).index_add_(0, bins, weights * (predicted - rows.labels))
    return float(gaps.abs().sum() / weights.sum())


def area_under_curve(rows: ScoredRows) -> float:
    """AUC, exact: the share of (positive, negative) pairs in the right order, by weight; a tie counts half.

    NaN where all labels are equal.
    """
    logits, index = torch.unique(rows.logits, return_inverse=True)
    positives, negatives = (  # weights at each logit that occurs, from the lowest on
        torch.zeros(len(logits), dtype=torch.float64).index_add_(0, index[kind], rows.weights[kind].double())
        for kind in (rows.labels > 0.5, rows.labels <= 0.5)
    )
    below = negatives.cumsum(0) - negatives / 2
    return float((positives * below).sum() / (positives.sum() * negatives.sum()))
