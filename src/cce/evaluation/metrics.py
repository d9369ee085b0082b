"""The two scores of the paper: binary cross-entropy and the area under the ROC curve."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """The mean over all rows, in nats and in double precision."""
    return float(functional.binary_cross_entropy_with_logits(logits.double(), labels.double()))


def auc(scores: Tensor, labels: Tensor) -> float:
    """The share of (positive, negative) pairs that are in the right order, a tie counting half; exact."""
    positive = labels > 0.5
    num_positive = int(positive.sum())
    num_negative = labels.numel() - num_positive
    if num_positive == 0 or num_negative == 0:
        raise ValueError(f"auc needs labels of both kinds, got {num_positive} positive and {num_negative} negative.")
    _, group, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = counts.cumsum(0).double() - (counts.double() - 1) / 2  # of each distinct score, from 1 on
    rank_sum = mean_rank[group[positive]].sum()
    return float((rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))
