"""The full table: one row per id. `H` is the identity; every other method is measured against it."""

from __future__ import annotations

from typing import Unpack

from cce.embeddings.linear import RandomEmbedding
from cce.embeddings.options import CommonOptions, Options
from cce.embeddings.sizing import Shapes
from cce.indexing import OwnRow


class FullEmbedding(RandomEmbedding):
    """`T = M`: `num_embeddings` rows of `embedding_dim` values, which start with the variance of DLRM's."""

    method = "full"
    sized_by = None
    usual_start = "dlrm"

    def __init__(self, num_embeddings: int, embedding_dim: int, **common: Unpack[CommonOptions]) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        self.make_parameters({}, common)

    def sources(self) -> tuple[int, int, list[OwnRow]]:
        """Each id is its own row."""
        return 1, 1, [OwnRow(self.num_embeddings)]

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        """A row for each id."""
        return Shapes({"codebook": (num_embeddings, embedding_dim)})
