"""Compositional embeddings by concatenation: a piece from each of several narrow tables, side by side.

Shi et al. (KDD 2020), see `compositional`. `H` has one 1 in each block of rows, and M is block-diagonal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cce.embeddings.compositional import SPLIT, CompositionalEmbedding, Split, piece_shape
from cce.embeddings.initialization import StartScale, normal_
from cce.embeddings.linear import RandomEmbedding
from cce.embeddings.options import optional, rules, whole

if TYPE_CHECKING:
    import torch

    from cce.indexing import RowSource


class CompositionalConcatEmbedding(CompositionalEmbedding, RandomEmbedding):
    """`T[x] = [M_1[h_1(x)] | … | M_c[h_c(x)]]` with `num_columns` tables of `embedding_dim / num_columns` values."""

    method = "ce-concat"
    option_checks = rules(num_rows=whole(1), num_columns=optional(whole(1)), split=SPLIT)

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
        options = {"num_rows": num_rows, "num_columns": num_columns, "split": split}
        self.make_tables(options, generator, device, dtype)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Every row is one piece of a vector."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)

    def sources(self) -> tuple[int, int, list[RowSource]]:
        """One row of each column's table."""
        return self.num_tables, 1, [self.split_rows()]

    @classmethod
    def pieces(cls, embedding_dim: int, options: Mapping[str, Any]) -> tuple[int, int]:
        """A narrow table for each column."""
        return piece_shape(embedding_dim, options["num_columns"])
