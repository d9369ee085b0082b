"""Compositional embeddings by sum: a row from each of several tables, added up.

Shi et al. (KDD 2020), see `compositional`. Unlike in hash embeddings every function has its own table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cce.embeddings.compositional import CompositionalEmbedding, Split
from cce.embeddings.initialization import StartScale, normal_
from cce.embeddings.linear import RandomEmbedding

if TYPE_CHECKING:
    import torch

    from cce.indexing import RowSource


class CompositionalSumEmbedding(CompositionalEmbedding, RandomEmbedding):
    """`T[x] = M_1[h_1(x)] + … + M_t[h_t(x)]` with `num_tables` tables of full width."""

    method = "ce-sum"

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
        """Variances of independent terms add up."""
        normal_(self.codebook, variance=self.start_variance / self.num_tables, generator=generator)

    def sources(self) -> tuple[int, int, list[RowSource]]:
        """One row of each table, all in one column."""
        return 1, self.num_tables, [self.split_rows()]

    @classmethod
    def pieces(cls, embedding_dim: int, options: Mapping[str, Any]) -> tuple[int, int]:
        """Tables of full width."""
        return options["num_tables"], embedding_dim
