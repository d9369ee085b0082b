"""Whether predicted probabilities are right: binary cross-entropy, the loss of the paper's models, also relative to a
constant prediction; and calibration, on the whole and bin by bin.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cce.evaluation.metric import ScoredRows, SummedMetric, check_rows


def binary_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """The mean over all rows, in nats and in double precision; weighted where there are weights."""
    check_rows(logits, labels, weights)
    metric = BinaryCrossEntropy()
    metric.add(ScoredRows.of(logits, labels, weights))
    return metric.compute()


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
