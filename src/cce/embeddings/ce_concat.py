"""Compositional embeddings by concatenation: a piece from each of several narrow tables, side by side.

Shi et al. (KDD 2020), see `compositional`. `H` has one 1 in each block of rows, and M is block-diagonal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.embeddings.compositional import (
    Split,
    make_split,
    piece_shape,
    size_split,
    split_check,
    split_rows,
    split_shapes,
)
from cce.embeddings.initialization import StartScale, new_parameter, normal_
from cce.embeddings.linear import RandomEmbedding
from cce.embeddings.options import optional, rules, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from cce.embeddings.shapes import Shapes
    from cce.indexing import RowSource


class CompositionalConcatEmbedding(RandomEmbedding):
    """`T[x] = [M_1[h_1(x)] | … | M_c[h_c(x)]]` with `num_columns` tables of `embedding_dim / num_columns` values."""

    method = "ce-concat"
    option_checks = rules(num_rows=whole(1), num_columns=optional(whole(1)), split=split_check)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        num_columns: int | None = None,
        split: Split = "hash",
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        self.check_options(num_rows=num_rows, num_columns=num_columns, split=split)
        num_columns, width = piece_shape(embedding_dim, num_columns)
        self.split = make_split(split, num_embeddings, num_tables=num_columns, num_rows=num_rows)
        self.codebook = new_parameter((sum(self.split.rows_per_column), width), device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Every row is one piece of a vector."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)

    def sources(self) -> tuple[int, int, list[RowSource]]:
        """One row of each column's table."""
        return len(self.split.rows_per_column), 1, [split_rows(self.split)]

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The rows of all tables, and their hash functions."""
        num_tables, width = piece_shape(embedding_dim, arguments["num_columns"])
        return split_shapes(arguments, num_embeddings, num_tables=num_tables, width=width)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Equal tables for hashed columns; for quotient–remainder, the remainder's table takes what is left."""
        num_tables, width = piece_shape(embedding_dim, options["num_columns"])
        return size_split(
            cls.method, options["split"], num_embeddings, num_tables=num_tables, width=width, num_params=num_params
        )
