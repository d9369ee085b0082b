"""The last clustering gives the helpers' rows to the clusters.

The paper's text speaks of it as "Step 3, where we follow the CE concat method"; its Algorithm 3 keeps the helpers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from cce.embeddings import CodebookShape, rules, whole
from cce.indexing import IndexModule
from cce_lab.variants.resized import ResizedEmbedding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from cce.embeddings import Learned, Shapes, StagedClustering


class SettlingEmbedding(ResizedEmbedding):
    """CCE without helpers, and with twice the rows, from clustering `settle_after` on; it is not clustered again."""

    method = "cce-settle"
    option_checks = rules(**ResizedEmbedding.option_checks, settle_after=whole(1))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, settle_after: int = 1, **options: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, **options)
        self.settle_after = settle_after
        self.clusterings = ClusteringCount()

    @property
    def later_shape(self) -> CodebookShape:
        """One table for each column, with the rows of both."""
        columns, tables, rows, width = self.codebook_shape
        return CodebookShape(columns, 1, tables * rows, width)

    @property
    def next_shape(self) -> CodebookShape:
        """As it is until the clustering at which it settles."""
        return self.later_shape if int(self.clusterings.count) + 1 >= self.settle_after else self.codebook_shape

    @property
    def can_cluster(self) -> bool:
        """Until it has settled."""
        return super().can_cluster and self.num_helpers > 0

    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """A clustering, of which the last makes the table settle."""
        if not self.num_helpers:
            raise ValueError(f"settle_after={self.settle_after} clusterings were made: the table has settled.")
        return super().stage(counts=counts, generator=generator)

    def become(self, learned: Learned) -> None:
        """Count the clustering."""
        super().become(learned)
        self.clusterings.count += 1

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """With the number of clusterings."""
        return replace(super().shapes(num_embeddings, embedding_dim, arguments), num_counts=1)


class ClusteringCount(IndexModule):
    """The number of clusterings of a table so far, saved with it."""

    index_state = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(1, dtype=torch.int32, device="cpu")
