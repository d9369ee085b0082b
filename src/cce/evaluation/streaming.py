"""Scores of rows that come batch by batch and are not kept."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cce.evaluation.metrics import auc_of_groups, count_groups
from cce.evaluation.rows import check_rows

NUM_BINS = 1 << 18
LARGEST = 16.0  # logits beyond are as good as equal: probabilities within 1e-7 of 0 or 1


class StreamingScores:
    """BCE exactly, and AUC up to ties: logits within 1/8,192 of each other may count as equal.

    `sums` adds up over processes: that of all rows is the sum of those of their parts.
    """

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        self.num_rows = 0
        self.sums = torch.zeros(
            2 + 2 * NUM_BINS, dtype=torch.float64, device=device
        )  # loss, weight, bins of both kinds

    def add(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        """Count some rows."""
        check_rows(logits, labels, weights, first_row=self.num_rows)
        self.num_rows += len(logits)
        weights = torch.ones_like(logits) if weights is None else weights
        losses = functional.binary_cross_entropy_with_logits(logits.double(), labels.double(), reduction="none")
        self.sums[0] += (losses * weights).sum()
        self.sums[1] += weights.double().sum()
        bins = ((logits.double().clamp(-LARGEST, LARGEST) + LARGEST) * (NUM_BINS - 1) / (2 * LARGEST)).round().long()
        positives, negatives = count_groups(bins, NUM_BINS, labels, weights)
        self.sums[2 : 2 + NUM_BINS] += positives
        self.sums[2 + NUM_BINS :] += negatives

    @property
    def bce(self) -> float:
        """The mean over all rows so far."""
        return float(self.sums[0] / self.sums[1])

    @property
    def auc(self) -> float:
        """The area under the ROC curve so far."""
        return auc_of_groups(self.sums[2 : 2 + NUM_BINS], self.sums[2 + NUM_BINS :])
