"""Circular clustering: the ids of every column are grouped by the other columns (appendix, "What didn't work")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.clustering import CircularQuantizer
from cce.embeddings import ClusteredEmbedding

if TYPE_CHECKING:
    from cce.clustering import ClusterSettings


class CircularEmbedding(ClusteredEmbedding):
    """CCE whose columns are clustered by the others; their pointers become alike ("table collapse")."""

    method = "cce-circular"

    def quantizer(self, settings: ClusterSettings) -> CircularQuantizer:
        """Every column's ids are grouped by what the other columns say of them."""
        return CircularQuantizer(self.num_columns, self.num_rows, settings)
