"""ROBE: every vector is cut from one circular array, block by block, at hashed offsets.

Desai, Chou and Shrivastava, "Random offset block embedding" (MLSys 2022). The table that is not stored is laid out as
one long row of `num_embeddings · embedding_dim` values and cut into blocks of `block_size`; block `b` lies at
`h(b), h(b) + 1, …` of the array, going on at its beginning when it passes the end. Blocks may overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cce.checks import check_range
from cce.embeddings.base import MAX_IDS, check_budget
from cce.embeddings.compositional import default_columns
from cce.embeddings.initialization import StartScale, new_parameter, normal_
from cce.embeddings.linear import RandomEmbedding
from cce.embeddings.options import optional, rules, whole
from cce.embeddings.shapes import Shapes
from cce.indexing import CircularPlaces, MultiplyShift

if TYPE_CHECKING:
    import torch


class RobeEmbedding(RandomEmbedding):
    """`T[x]_i = M[(h(p // Z) + p mod Z) mod size]` with `p = x · embedding_dim + i` and `Z = block_size`.

    By default a vector is four blocks, as CE and CCE have four columns.
    """

    method = "robe"
    option_checks = rules(size=whole(1), block_size=optional(whole(1, MAX_IDS)))

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        size: int,
        block_size: int | None = None,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        check_range("num_embeddings · embedding_dim", num_embeddings * embedding_dim, 1, MAX_IDS)
        self.check_options(size=size, block_size=block_size)
        self.block_size = block_size or embedding_dim // default_columns(embedding_dim)
        self.hash = MultiplyShift(1, size, device="meta")
        shape = self.shapes(num_embeddings, embedding_dim, {"size": size}).parameters["codebook"]
        self.codebook = new_parameter(shape, device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Every value is one of a vector."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)

    def sources(self) -> tuple[int, int, list[CircularPlaces]]:
        """The index in the array of each value of the vector."""
        return self.embedding_dim, 1, [CircularPlaces(self.hash, self.embedding_dim, self.block_size)]

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The array, and its hash function."""
        del num_embeddings, embedding_dim
        return Shapes({"codebook": (arguments["size"], 1)}, num_hashes=1)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The array is the budget."""
        del num_embeddings, embedding_dim, options
        check_budget(cls.method, num_params, 1)
        return {"size": num_params}
