"""Compositional embeddings by product: a row from each of several tables, multiplied value by value.

Shi et al. (KDD 2020), see `compositional`. Not linear in its tables; the CCE paper calls it hard to train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.embeddings.compositional import Split, make_split, size_split, split_check, split_rows, split_shapes
from cce.embeddings.initialization import StartScale, new_parameter, normal_, output_variance, scale_factor
from cce.embeddings.linear import RowEmbedding
from cce.embeddings.options import rules, whole
from cce.kernels import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from cce.embeddings.shapes import Shapes


class CompositionalProductEmbedding(RowEmbedding):
    """`T[x] = M_1[h_1(x)] ⊙ … ⊙ M_t[h_t(x)]` with `num_tables` tables of full width."""

    method = "ce-mult"
    option_checks = rules(num_rows=whole(1), num_tables=whole(1), split=split_check)

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
        self.check_options(num_rows=num_rows, num_tables=num_tables, split=split)
        self.split = make_split(split, num_embeddings, num_tables=num_tables, num_rows=num_rows)
        shape = sum(self.split.rows_per_column), embedding_dim
        self.codebook = new_parameter(shape, device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Variances of independent factors multiply; the first table carries the scale."""
        first_rows, *others = self.split.rows_per_column
        variance = output_variance(self.embedding_dim) ** (1 / (1 + len(others)))
        normal_(self.codebook, variance=variance, generator=generator)
        scale_factor(self.codebook[:first_rows], self.start_variance, self.embedding_dim)

    def embed(self, ids: Tensor) -> Tensor:
        """The product of one row of each table."""
        factors = self.look_up(ids)
        return factors.view(-1, len(self.split.rows_per_column), self.embedding_dim).prod(dim=1)

    def layout(self) -> Layout:
        """All factors side by side."""
        num_tables, num_rows = len(self.split.rows_per_column), len(self.codebook)
        sources = (split_rows(self.split),)
        return Layout(self.num_embeddings, num_tables, 1, self.embedding_dim, num_rows, sources, self.padding_idx)

    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Not supported: the nearest product of shared rows is a hard problem."""
        del weight, generator
        raise ValueError("method 'ce-mult' cannot start from a trained table; ce-sum and ce-concat can.")

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The rows of all tables, and their hash functions."""
        return split_shapes(arguments, num_embeddings, num_tables=arguments["num_tables"], width=embedding_dim)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Equal tables for hashing; for quotient–remainder, the remainder's table takes what is left."""
        return size_split(
            cls.method,
            options["split"],
            num_embeddings,
            num_tables=options["num_tables"],
            width=embedding_dim,
            num_params=num_params,
        )
