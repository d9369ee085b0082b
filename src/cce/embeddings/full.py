"""The full table: one row per id. `H` is the identity; every other method is measured against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cce.embeddings.base import check_budget
from cce.embeddings.initialization import StartScale, new_parameter, normal_
from cce.embeddings.linear import RandomEmbedding
from cce.embeddings.shapes import Shapes
from cce.indexing import OwnRow

if TYPE_CHECKING:
    import torch


class FullEmbedding(RandomEmbedding):
    """`T = M`: `num_embeddings` rows of `embedding_dim` values, which start with the variance of DLRM's."""

    method = "full"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "dlrm",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        shape = self.shapes(num_embeddings, embedding_dim, {}).parameters["codebook"]
        self.codebook = new_parameter(shape, device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Every row is a vector."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)

    def sources(self) -> tuple[int, int, list[OwnRow]]:
        """Each id is its own row."""
        return 1, 1, [OwnRow(self.num_embeddings)]

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """A row for each id."""
        del arguments
        return Shapes({"codebook": (num_embeddings, embedding_dim)})

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """There is nothing to choose: the budget must hold all of it."""
        del options
        check_budget(cls.method, num_params, num_embeddings * embedding_dim)
        return {}
