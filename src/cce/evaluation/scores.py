"""Whether predicted probabilities are right: binary cross-entropy, the loss of the paper's models, also relative to a
constant prediction; and calibration, on the whole and bin by bin. How well rows are ranked: AUC, on the whole and by
group.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cce.evaluation.metric import ScoredRows, SummedMetric, WholeMetric, check_rows


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


# -- ranking -----------------------------------------------------------------------------------------------------------


def auc(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """The share of (positive, negative) pairs that are in the right order, a tie counting half; exact.

    With weights a pair counts as much as the product of the weights of its rows.
    """
    check_rows(scores, labels, weights)
    positives, negatives = _count_equal(ScoredRows.of(scores, labels, weights))
    kinds = [float(weight.sum()) for weight in (positives, negatives)]
    if 0 in kinds:
        raise ValueError(f"auc needs labels of both kinds, got {kinds[0]:g} positive and {kinds[1]:g} negative.")
    return _area(positives, negatives)


class AreaUnderCurve(WholeMetric):
    """AUC, exact."""

    def score(self, rows: ScoredRows) -> float:
        """NaN where all labels are equal."""
        return _area(*_count_equal(rows))


class GroupedAreaUnderCurve(WholeMetric):
    """The mean AUC within groups of rows, weighted by the rows of each group (Zhu et al. 2017, "GAUC").

    Groups whose labels are all equal have no AUC and are left out, and so are rows without a group.
    """

    def score(self, rows: ScoredRows) -> float:
        """NaN where no group has labels of both kinds."""
        rows = rows[rows.groups >= 0]
        _, group = torch.unique(rows.groups, return_inverse=True)
        num_groups = int(group.max()) + 1 if len(group) else 0
        positives, negatives = _sum_by_kind(group, num_groups, rows)
        pairs, ordered = positives * negatives, _pairs_in_order(rows, group, num_groups)
        has_both = pairs > 0
        weight = (positives + negatives)[has_both]
        return float((ordered[has_both] / pairs[has_both] * weight).sum() / weight.sum())


def _count_equal(rows: ScoredRows) -> tuple[Tensor, Tensor]:
    """The weights of positives and negatives of each logit that occurs, from the lowest on."""
    _, inverse = torch.unique(rows.logits, return_inverse=True)
    return _sum_by_kind(inverse, int(inverse.max()) + 1 if len(inverse) else 0, rows)


def _sum_by_kind(index: Tensor, size: int, rows: ScoredRows) -> tuple[Tensor, Tensor]:
    """The weights of the positives and of the negatives with each index."""
    sums = []
    for kind in (rows.labels > 0.5, rows.labels <= 0.5):
        zeros = torch.zeros(size, dtype=torch.float64, device=index.device)
        sums.append(zeros.index_add_(0, index[kind], rows.weights[kind].double()))
    return sums[0], sums[1]


def _area(positives: Tensor, negatives: Tensor) -> float:
    """The area, where each run of equal logits, from the lowest on, has so many positives and negatives."""
    below = negatives.cumsum(0) - negatives / 2
    return float((positives * below).sum() / (positives.sum() * negatives.sum()))


def _pairs_in_order(rows: ScoredRows, group: Tensor, num_groups: int) -> Tensor:
    """The weight of the correctly ordered pairs of each group; ties count half."""
    _, logit = torch.unique(rows.logits, return_inverse=True)
    num_logits = int(logit.max()) + 1 if len(logit) else 1
    runs, run = torch.unique(group * num_logits + logit, return_inverse=True)  # by group, then by logit
    run_positives, run_negatives = _sum_by_kind(run, len(runs), rows)
    run_group = runs // num_logits
    first_run = torch.searchsorted(run_group, torch.arange(num_groups))
    before = run_negatives.cumsum(0) - run_negatives
    below = before - before[first_run][run_group] + run_negatives / 2
    zeros = torch.zeros(num_groups, dtype=torch.float64)
    return zeros.index_add_(0, run_group, run_positives * below)
