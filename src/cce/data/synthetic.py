"""Clicks with planted clusters: data whose best possible model is known.

Every id of every feature belongs to a hidden cluster, and only clusters matter for the label: a table with one row per
cluster would do. Ids are drawn by Zipf's law, numbered from the most frequent on, so most of them are rarely seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.checks import check_range

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Sample:
    """Rows of a click log."""

    ids: Tensor  # (n, features), int64
    labels: Tensor  # (n), 0 or 1
    probabilities: Tensor  # (n), of a 1: what only the oracle knows

    @property
    def oracle_bce(self) -> float:
        """The binary cross-entropy of the true probabilities on these labels: no model can be expected below it."""
        return float(torch.nn.functional.binary_cross_entropy(self.probabilities, self.labels.double()))


class PlantedClusters:
    """A click log of features with `vocabulary_sizes` ids, each in one of `num_clusters` hidden clusters.

    The logit of a row is the sum, over pairs of features, of the dot products of its ids' cluster vectors.
    """

    def __init__(
        self,
        vocabulary_sizes: Sequence[int],
        *,
        num_clusters: int = 16,
        latent_dim: int = 8,
        zipf: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        check_range("number of vocabulary_sizes", len(vocabulary_sizes), 2, 2**31)
        check_range("num_clusters", num_clusters, 1, 2**31)
        check_range("latent_dim", latent_dim, 1, 2**31)
        for size in vocabulary_sizes:
            check_range("vocabulary_sizes", size, 1, 2**63)
        self.vocabulary_sizes = tuple(vocabulary_sizes)
        self.clusters = [torch.randint(num_clusters, (n,), generator=generator) for n in vocabulary_sizes]
        num_pairs = len(vocabulary_sizes) * (len(vocabulary_sizes) - 1) / 2
        scale = (3.0 / (latent_dim * num_pairs) ** 0.5) ** 0.5  # logits of standard deviation 3
        self.vectors = [
            scale * torch.randn(num_clusters, latent_dim, generator=generator, dtype=torch.float64)
            for _ in vocabulary_sizes
        ]
        self._cumulative = [_zipf_cumulative(n, zipf) for n in vocabulary_sizes]

    def sample(self, num_rows: int, *, generator: torch.Generator | None = None) -> Sample:
        """`num_rows` independent rows."""
        check_range("num_rows", num_rows, 0, 2**63)
        ids = torch.stack([_draw(c, num_rows, generator) for c in self._cumulative], dim=1)
        features = [v[c[column]] for v, c, column in zip(self.vectors, self.clusters, ids.unbind(1), strict=True)]
        stacked = torch.stack(features)  # (features, n, latent_dim)
        pairs = (stacked.sum(0).square() - stacked.square().sum(0)).sum(-1) / 2
        probabilities = torch.sigmoid(pairs)
        labels = torch.bernoulli(probabilities, generator=generator).float()
        return Sample(ids, labels, probabilities)


def _zipf_cumulative(num_ids: int, exponent: float) -> Tensor:
    weights = torch.arange(1, num_ids + 1, dtype=torch.float64).pow(-exponent)
    cumulative = weights.cumsum(0)
    return cumulative / cumulative[-1].clone()


def _draw(cumulative: Tensor, num_rows: int, generator: torch.Generator | None) -> Tensor:
    uniform = torch.rand(num_rows, dtype=torch.float64, generator=generator)
    return torch.searchsorted(cumulative, uniform, right=True).clamp(max=len(cumulative) - 1)
