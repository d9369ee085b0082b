"""Compositional embeddings by product: a row from each of several tables, multiplied value by value.

Shi et al. (KDD 2020), see `compositional`. Not linear in its tables; the CCE paper calls it hard to train.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cce.embeddings.compositional import CompositionalEmbedding, Split
from cce.embeddings.initialization import StartScale, normal_, output_variance, scale_factor
from cce.kernels import Layout

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class CompositionalProductEmbedding(CompositionalEmbedding):
    """`T[x] = M_1[h_1(x)] ⊙ … ⊙ M_t[h_t(x)]` with `num_tables` tables of full width."""

    method = "ce-mult"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        num_tables: int = 2,
        split: Split = "hash",
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        options = {"num_rows": num_rows, "num_tables": num_tables, "split": split}
        self.make_tables(options, generator, device, dtype)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Variances of independent factors multiply; the first table carries the scale."""
        variance = output_variance(self.embedding_dim) ** (1 / self.num_tables)
        normal_(self.codebook, variance=variance, generator=generator)
        first_table = self.codebook[: self.split.rows_per_column[0]]
        scale_factor(first_table, self.start_variance, self.embedding_dim)

    def embed(self, ids: Tensor) -> Tensor:
        """The product of one row of each table."""
        return self.look_up(ids).view(-1, self.num_tables, self.embedding_dim).prod(dim=1)

    def layout(self) -> Layout:
        """All factors side by side."""
        size, num_rows, sources = self.embedding_dim, len(self.codebook), (self.split_rows(),)
        return Layout(self.num_embeddings, self.num_tables, 1, size, num_rows, sources, self.padding_idx)

    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Not supported: the nearest product of shared rows is a hard problem."""
        del weight, generator
        raise ValueError("method 'ce-mult' cannot start from a trained table; ce-sum and ce-concat can.")

    @classmethod
    def pieces(cls, embedding_dim: int, options: Mapping[str, Any]) -> tuple[int, int]:
        """Tables of full width."""
        return options["num_tables"], embedding_dim
