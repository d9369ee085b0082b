"""How well the rows of a query are ranked: NDCG and recall of the first k.

Rows with equal logits have no defined order: a score is the mean over all orders of them, as in McSherry and
Najork 2008. Queries without positives have no score and are left out, and so are rows without a group and rows of
weight 0. The score is the mean over queries, each weighted by the mean weight of its rows.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from cce.evaluation.metric import ScoredRows, WholeMetric


class _RankingMetric(WholeMetric):
    """A mean over queries of `Σ gain of the ranks of its positives / the most that it could be`."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    @abstractmethod
    def gains(self) -> Tensor:
        """What a positive is worth at each of the first k ranks, `(k)`."""

    @abstractmethod
    def most(self, num_positives: Tensor, cumulated: Tensor) -> Tensor:
        """What a perfect ranking is worth, by query; `cumulated` has the gains of the first 0, 1, …, k ranks."""

    def score(self, rows: ScoredRows) -> float:
        """NaN where no query has a positive."""
        rows = rows[(rows.groups >= 0) & (rows.weights > 0)]
        queries, query = torch.unique(rows.groups, return_inverse=True)
        num_rows, num_positives, weight = (
            torch.zeros(len(queries), dtype=torch.float64).index_add_(0, query, values.double())
            for values in (torch.ones_like(rows.logits), rows.labels, rows.weights)
        )
        cumulated = torch.cat([torch.zeros(1, dtype=torch.float64), self.gains().cumsum(0)])
        gain = _gain_of_rows(rows, query, num_rows.long(), cumulated)
        found = torch.zeros_like(num_rows).index_add_(0, query, gain * rows.labels.double())
        has_positives = num_positives > 0
        scores = found[has_positives] / self.most(num_positives[has_positives].long(), cumulated)
        weights = (weight / num_rows)[has_positives]
        return float((scores * weights).sum() / weights.sum())


class NormalizedDiscountedGain(_RankingMetric):
    """NDCG@k: a positive at rank r is worth 1 / log2(r + 1), relative to the best order (Järvelin, Kekäläinen 2002)."""

    def gains(self) -> Tensor:
        """By rank, from the first."""
        return 1 / torch.arange(2, self.k + 2, dtype=torch.float64).log2()

    def most(self, num_positives: Tensor, cumulated: Tensor) -> Tensor:
        """All positives first."""
        return cumulated[num_positives.clamp(max=self.k)]


class Recall(_RankingMetric):
    """Recall@k: the share of a query's positives that are among its first k rows."""

    def gains(self) -> Tensor:
        """One for each of the first k ranks."""
        return torch.ones(self.k, dtype=torch.float64)

    def most(self, num_positives: Tensor, cumulated: Tensor) -> Tensor:
        """All positives, also where they are more than k."""
        del cumulated
        return num_positives.double()


def _gain_of_rows(rows: ScoredRows, query: Tensor, num_rows: Tensor, cumulated: Tensor) -> Tensor:
    """What each row would be worth as a positive: the mean gain of the ranks that it shares with its ties."""
    _, height = torch.unique(-rows.logits, return_inverse=True)  # the highest logit is 0
    num_heights = int(height.max()) + 1 if len(height) else 1
    runs, run, length = torch.unique(query * num_heights + height, return_inverse=True, return_counts=True)
    first_row = num_rows.cumsum(0) - num_rows  # of each query, if all rows are sorted by query and rank
    start = length.cumsum(0) - length - first_row[runs // num_heights]
    k = len(cumulated) - 1
    gain: Tensor = cumulated[(start + length).clamp(max=k)] - cumulated[start.clamp(max=k)]
    mean: Tensor = gain / length
    return mean[run]
