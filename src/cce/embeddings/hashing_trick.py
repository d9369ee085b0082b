"""The hashing trick: ids share rows at random.

Weinberger et al., "Feature hashing for large scale multitask learning" (ICML 2009). `H` has a single ±1 in each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cce.checks import check_flag
from cce.embeddings.base import check_budget
from cce.embeddings.initialization import StartScale, new_parameter, normal_
from cce.embeddings.linear import RandomEmbedding
from cce.embeddings.options import rules, whole
from cce.embeddings.shapes import Shapes
from cce.indexing import HashedRows, MultiplyShift

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class HashingTrickEmbedding(RandomEmbedding):
    """`T[x] = s(x) · M[h(x)]`, with `num_rows` rows; the sign `s` is 1 unless `signed`."""

    method = "hash"
    option_checks = rules(num_rows=whole(1), signed=check_flag)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        signed: bool = False,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        self.check_options(num_rows=num_rows, signed=signed)
        self.hash = MultiplyShift(1, num_rows, device="meta")
        self.sign = MultiplyShift(1, 2, device="meta") if signed else None
        shapes = self.shapes(num_embeddings, embedding_dim, {"num_rows": num_rows, "signed": signed}).parameters
        self.codebook = new_parameter(shapes["codebook"], device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Every row is a vector."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)

    def sources(self) -> tuple[int, int, list[HashedRows]]:
        """One hashed row."""
        return 1, 1, [HashedRows(self.hash, slots=(0,), first_rows=(0,))]

    @property
    def is_weighted(self) -> bool:
        """Whether rows have signs."""
        return self.sign is not None

    def weights(self, ids: Tensor) -> Tensor | None:
        """The sign of the row."""
        return None if self.sign is None else self.sign.signs(ids).unsqueeze(1)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The rows; a hash function for them, and one for signs."""
        del num_embeddings
        return Shapes({"codebook": (arguments["num_rows"], embedding_dim)}, num_hashes=1 + arguments["signed"])

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Size the table to the most rows within the budget."""
        del num_embeddings, options
        check_budget(cls.method, num_params, embedding_dim)
        return {"num_rows": num_params // embedding_dim}
