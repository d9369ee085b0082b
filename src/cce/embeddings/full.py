"""One row an id: its own, in the full table that others are measured against, or one shared at random.

The hashing trick: Weinberger et al., "Feature hashing for large scale multitask learning" (ICML 2009). `H` has a
single ±1 in each row.
"""

from typing import Unpack

import torch
from torch import Tensor

from cce.checks import check_flag
from cce.embeddings.base import check_weight
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import CommonOptions, Options, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import HashedRows, MultiplyShift, OwnRow


class FullEmbedding(LinearEmbedding):
    """`T = M`: `num_embeddings` rows of `embedding_dim` values, which start with the variance of DLRM's."""

    method = "full"
    sized_by = None
    usual_start = "dlrm"

    def __init__(self, num_embeddings: int | None, embedding_dim: int, **common: Unpack[CommonOptions]) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        self.make_parameters({}, common)

    def sources(self) -> tuple[int, int, list[OwnRow]]:
        return 1, 1, [OwnRow(len(self.codebook))]

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        check_weight(self, weight)
        self.codebook.copy_(weight)

    @classmethod
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        assert num_embeddings is not None
        return Shapes({"codebook": (num_embeddings, embedding_dim)})


class HashingTrickEmbedding(LinearEmbedding):
    """`T[x] = s(x) · M[h(x)]`, with `num_rows` rows; the sign `s` is 1 unless `signed`."""

    method = "hash"
    takes_any_id = True
    option_checks = rules(num_rows=whole(1), signed=check_flag)

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        num_rows: int,
        signed: bool = False,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options = self.check_options(num_rows=num_rows, signed=signed)
        self.hash = MultiplyShift(1, num_rows, device="meta")
        self.sign = MultiplyShift(1, 2, device="meta") if signed else None
        self.make_parameters(options, common)

    def sources(self) -> tuple[int, int, list[HashedRows]]:
        return 1, 1, [HashedRows(self.hash, slots=(0,), first_rows=(0,))]

    @property
    def is_weighted(self) -> bool:
        return self.sign is not None

    def weights(self, ids: Tensor) -> Tensor | None:
        return None if self.sign is None else self.sign.signs(ids).unsqueeze(1)

    @classmethod
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        return Shapes({"codebook": (arguments["num_rows"], embedding_dim)}, num_hashes=1 + arguments["signed"])
