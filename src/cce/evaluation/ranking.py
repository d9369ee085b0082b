"""How well rows are ranked: the area under the ROC curve, on the whole and by group."""

from __future__ import annotations

import torch
from torch import Tensor

from cce.evaluation.metric import ScoredRows, WholeMetric, check_rows


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
