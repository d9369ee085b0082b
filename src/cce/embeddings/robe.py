"""ROBE: every vector is cut from one circular array, block by block, at hashed offsets.

Desai, Chou and Shrivastava, "Random offset block embedding" (MLSys 2022). The table that is not stored is laid out as
one long row of `num_embeddings · embedding_dim` values and cut into blocks of `block_size`; block `b` lies at
`h(b), h(b) + 1, …` of the array, going on at its beginning when it passes the end. Blocks may overlap.
"""

from typing import Unpack

from cce.checks import check_range
from cce.embeddings.base import MAX_IDS
from cce.embeddings.compositional import default_columns
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import CommonOptions, Options, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import CircularPlaces, MultiplyShift


class RobeEmbedding(LinearEmbedding):
    """`T[x]_i = M[(h(p // Z) + p mod Z) mod size]` with `p = x · embedding_dim + i` and `Z = block_size`.

    By default a vector is four blocks, as CE and CCE have four columns.
    """

    method = "robe"
    takes_any_id = True
    sized_by = "size"
    option_checks = rules(size=whole(1), block_size=optional(whole(1, MAX_IDS)))

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        size: int,
        block_size: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        check_range("num_embeddings · embedding_dim", (num_embeddings or 1) * embedding_dim, 1, MAX_IDS)
        options = self.check_options(size=size, block_size=block_size)
        self.block_size = block_size or embedding_dim // default_columns(embedding_dim)
        self.hash = MultiplyShift(1, size, device="meta")
        self.make_parameters(options, common)

    def sources(self) -> tuple[int, int, list[CircularPlaces]]:
        return self.embedding_dim, 1, [CircularPlaces(self.hash, self.embedding_dim, self.block_size)]

    @classmethod
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        return Shapes({"codebook": (arguments["size"], 1)}, num_hashes=1)
