"""Residual vector quantisation in place of product quantisation (appendix, "What didn't work")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.clustering import ResidualQuantizer
from cce.embeddings import ClusteredEmbedding, CodebookShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.clustering import ClusterSettings


class SummedEmbedding(ClusteredEmbedding):
    """CCE whose pieces are as wide as the vectors and add up; each column is clustered by what others leave over."""

    method = "cce-sum"

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """Tables of full width."""
        return super().shape_of(embedding_dim, arguments)._replace(width=embedding_dim)

    def quantizer(self, settings: ClusterSettings) -> ResidualQuantizer:
        """Every codebook is fitted to what the ones before it leave over."""
        return ResidualQuantizer(self.num_columns, self.num_rows, settings)
