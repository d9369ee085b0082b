"""Low rank: a narrow table with a row for each id, times a projection to the full width. `H` is dense and trained.

The factorised table of ALBERT (Lan et al., ICLR 2020), and a baseline in the result files of the CCE paper's authors,
where it is ahead of CCE on MovieLens. Mixed dimensions are one of these for each block of ids.
"""

from typing import Unpack

import torch
from torch import Tensor, nn

from cce.checks import check_range
from cce.embeddings.base import Embedding, check_weight
from cce.embeddings.initialization import normal_, projection_
from cce.embeddings.options import CommonOptions, Options, rules, whole
from cce.embeddings.sizing import Shapes
from cce.kernels import gather_rows

BLOCK = 1 << 16  # rows taken to double precision at a time


class LowRankEmbedding(Embedding):
    """`T[x] = N[x] · P`, where rows of `N` have `rank` values and `P` widens them to `embedding_dim`."""

    method = "low-rank"
    sized_by = "rank"
    narrow: nn.Parameter  # (num_embeddings, rank)
    projection: nn.Parameter  # (rank, embedding_dim)
    option_checks = rules(rank=whole(1))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, rank: int, **common: Unpack[CommonOptions]) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options = self.check_options(rank=rank)
        check_range("rank", rank, 1, embedding_dim + 1)
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """The narrow table carries the scale."""
        normal_(self.narrow, variance=self.start_variance, generator=generator)
        projection_(self.projection, generator=generator)

    def embed(self, ids: Tensor) -> Tensor:
        return gather_rows(self.narrow, ids, sparse=self.sparse) @ self.projection

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """The best narrow table and projection, by singular values."""
        check_weight(self, weight)
        narrow, projection = low_rank_factors(weight, len(self.projection))
        self.narrow.copy_(narrow)
        self.projection.copy_(projection)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        rank = arguments["rank"]
        return Shapes({"narrow": (num_embeddings, rank), "projection": (rank, embedding_dim)})


def low_rank_factors(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """`(n, rank)` and `(rank, dim)` whose product is nearest to `weight` `(n, dim)`; `rank` is at most `dim`.

    From the `dim × dim` Gram matrix, so that a tall table costs one pass over it.
    """
    blocks = torch.split(weight, BLOCK)
    gram = torch.stack([block.double().T @ block.double() for block in blocks]).sum(0)
    _, vectors = torch.linalg.eigh(gram)  # ascending
    projection = vectors.flip(-1)[:, :rank]  # (dim, rank)
    narrow = torch.cat([(block.double() @ projection).to(weight.dtype) for block in blocks])
    return narrow, projection.T.to(weight.dtype)
