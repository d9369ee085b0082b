"""Ids counted while they train, so that k-means can sample them or weigh them by how often they occur."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from cce.embeddings import ClusteredEmbedding
from cce.indexing import IdCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from cce.embeddings import Shapes, StagedClustering


class CountedEmbedding(ClusteredEmbedding):
    """CCE that counts the ids of training, for `settings` that sample or weigh by frequency."""

    method = "cce-counts"
    counts: IdCounts

    def __init__(self, num_embeddings: int, embedding_dim: int, **options: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, **options)
        self.counts = IdCounts(self.assignments.num_learned)

    @property
    def keeps_counts(self) -> bool:
        """Whether there is an id to count."""
        return self.can_cluster

    def count(self, ids: Tensor) -> None:
        """Count the ids of training."""
        if self.keeps_counts and self.training and torch.is_grad_enabled():
            self.counts.add(ids.reshape(-1), ignored=self.padding_idx)

    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """Cluster by the counts so far, unless others are given."""
        return super().stage(counts=self.counts.counts if counts is None else counts, generator=generator)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """A counter for each id that learns."""
        shapes = super().shapes(num_embeddings, embedding_dim, arguments)
        return replace(shapes, num_counts=shapes.pointers[0])
