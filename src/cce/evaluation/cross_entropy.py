"""Binary cross-entropy, the loss of the paper's models, and the same relative to a constant prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from cce.evaluation.metric import SummedMetric
from cce.evaluation.rows import ScoredRows, check_rows

if TYPE_CHECKING:
    from torch import Tensor


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
