"""The two scores of the paper: binary cross-entropy and the area under the ROC curve."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cce.evaluation.rows import check_rows


def binary_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """The mean over all rows, in nats and in double precision; weighted where there are weights."""
    check_rows(logits, labels, weights)
    losses = functional.binary_cross_entropy_with_logits(logits.double(), labels.double(), reduction="none")
    return float(losses.mean()) if weights is None else float((losses * weights).sum() / weights.double().sum())


def auc(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """The share of (positive, negative) pairs that are in the right order, a tie counting half; exact.

    With weights a pair counts as much as the product of the weights of its rows.
    """
    check_rows(scores, labels, weights)
    _, group = torch.unique(scores, return_inverse=True)
    weights = torch.ones(len(scores), dtype=torch.float64, device=scores.device) if weights is None else weights
    return auc_of_groups(*count_groups(group, int(group.max()) + 1 if len(group) else 0, labels, weights))


def count_groups(group: Tensor, num_groups: int, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of the positives and of the negatives in each group of rows."""
    sums = []
    for rows in (labels > 0.5, labels <= 0.5):
        zeros = torch.zeros(num_groups, dtype=torch.float64, device=group.device)
        sums.append(zeros.index_add_(0, group[rows], weights[rows].double()))
    return sums[0], sums[1]


def auc_of_groups(positives: Tensor, negatives: Tensor) -> float:
    """The area, where each group of equal scores, from the lowest on, has so many positives and negatives."""
    num_positive, num_negative = float(positives.sum()), float(negatives.sum())
    if num_positive == 0 or num_negative == 0:
        raise ValueError(
            f"auc needs labels of both kinds, got {num_positive:g} positive and {num_negative:g} negative."
        )
    below = negatives.cumsum(0) - negatives / 2
    return float((positives * below).sum() / (num_positive * num_negative))
