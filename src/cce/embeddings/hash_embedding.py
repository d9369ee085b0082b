"""Hash embeddings: every id is the sum of a few rows of one shared table.

Svenstrup, Hansen and Winther, "Hash embeddings for efficient word representations" (NIPS 2017). `H` has `num_hashes`
non-zeros in each row: ones, or, in the weighted form of the paper, trained importance weights `P[h'(x)]`.
"""

from typing import Unpack

import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_range
from cce.embeddings.base import MAX_IDS, check_budget
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import CommonOptions, Options, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import HashedRows, MultiplyShift
from cce.kernels import gather_rows

WEIGHT_SHARE = 4  # a quarter of a budget goes to the importance weights


class HashEmbedding(LinearEmbedding):
    """`T[x] = Σ_j w_j(x) · M[h_j(x)]` over `num_hashes` functions into the same `num_rows` rows.

    All weights are 1 unless `weighted`; then they are trained, from 1 on. Ids share `num_weights` rows of them by
    hashing, or have their own where there are as many rows as ids (the default).
    """

    method = "hash-embedding"
    takes_any_id = True
    option_checks = rules(
        num_rows=whole(1),
        num_hashes=whole(1),
        weighted=check_flag,
        num_weights=optional(whole(1, MAX_IDS)),
    )

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        num_rows: int,
        num_hashes: int = 2,
        weighted: bool = False,
        num_weights: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options = self.check_options(
            num_rows=num_rows, num_hashes=num_hashes, weighted=weighted, num_weights=num_weights
        )
        if num_weights is not None and not weighted:
            raise ValueError(f"num_weights goes with weighted=True, got num_weights={num_weights} without it.")
        self.hash = MultiplyShift(num_hashes, num_rows, device="meta")
        self.importance: nn.Parameter | None = None
        self.importance_hash: MultiplyShift | None = None
        if num_embeddings is None and weighted and num_weights is None:
            raise ValueError("num_weights must be given with num_embeddings=None and weighted=True, got None.")
        if num_weights is not None:
            check_range("num_weights", num_weights, 1, (num_embeddings or MAX_IDS - 1) + 1)
            if num_weights < (num_embeddings or MAX_IDS):
                self.importance_hash = MultiplyShift(1, num_weights, device="meta")
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Rows as usual; weights are 1."""
        super().init_parameters(generator)
        if self.importance is not None:
            nn.init.ones_(self.importance)

    def sources(self) -> tuple[int, int, list[HashedRows]]:
        num_hashes = self.hash.num_hashes
        return 1, num_hashes, [HashedRows(self.hash, slots=range(num_hashes), first_rows=(0,) * num_hashes)]

    @property
    def is_weighted(self) -> bool:
        return self.importance is not None

    def weights(self, ids: Tensor) -> Tensor | None:
        if self.importance is None:
            return None
        shared = ids if self.importance_hash is None else self.importance_hash(ids).squeeze(-1)
        return gather_rows(self.importance, shared, sparse=self.sparse).unsqueeze(1)

    @classmethod
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        shapes, num_hashes = {"codebook": (arguments["num_rows"], embedding_dim)}, arguments["num_hashes"]
        if not arguments["weighted"]:
            return Shapes(shapes, num_hashes)
        num_weights = arguments["num_weights"] or num_embeddings or 1
        is_hashed = num_weights < (num_embeddings or MAX_IDS)
        return Shapes(shapes | {"importance": (num_weights, num_hashes)}, num_hashes + is_hashed)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int | None, embedding_dim: int, num_params: int, options: Options
    ) -> Options:
        """All of the budget for rows; when `weighted`, a quarter for the weights unless `num_weights` is given."""
        num_hashes, num_weights = options["num_hashes"], 0
        if options["weighted"]:
            share = max(1, min(num_params // WEIGHT_SHARE, num_params - embedding_dim) // num_hashes)
            num_weights = options["num_weights"] or min(share, num_embeddings or share)
        check_budget(cls.method, num_params, embedding_dim + num_weights * num_hashes)
        num_rows = (num_params - num_weights * num_hashes) // embedding_dim
        return {"num_rows": num_rows} | ({"num_weights": num_weights} if num_weights else {})
