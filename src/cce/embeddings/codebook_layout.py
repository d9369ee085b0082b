"""The tables of CCE in its codebook: one below the other, for each column the clustered one and then its helpers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cce.embeddings.compositional import piece_shape
from cce.embeddings.presets import PRESETS
from cce.indexing import stack_rows

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class CodebookLayout:
    """`num_columns` clustered tables with `num_helpers` helpers each, all of `num_rows` rows of `width` values."""

    num_columns: int
    num_helpers: int
    num_rows: int
    width: int
    is_sum: bool  # pieces are as wide as vectors and add up

    @classmethod
    def of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookLayout:
        """The layout at the start, for complete arguments of the constructor."""
        is_sum = arguments["combine"] == "sum"
        num_columns = arguments["num_columns"] or PRESETS[arguments["preset"]].columns(embedding_dim)
        num_columns, width = piece_shape(embedding_dim, num_columns, summed=is_sum)
        num_rows = arguments["first_rows"] or arguments["num_rows"]
        return cls(num_columns, arguments["num_helpers"], num_rows, width, is_sum)

    @property
    def num_terms(self) -> int:
        """Tables of a column."""
        return 1 + self.num_helpers

    @property
    def num_tables(self) -> int:
        """Tables of all columns."""
        return self.num_columns * self.num_terms

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the codebook."""
        return self.num_tables * self.num_rows, self.width

    @property
    def slots(self) -> tuple[int, int]:
        """Columns of a vector, and terms that add up in each."""
        return (1, self.num_tables) if self.is_sum else (self.num_columns, self.num_terms)

    @property
    def clustered(self) -> list[int]:
        """The clustered table of each column."""
        return list(range(0, self.num_tables, self.num_terms))

    @property
    def helpers(self) -> list[int]:
        """The helper tables, column by column."""
        return [table for table in range(self.num_tables) if table % self.num_terms]

    def first_rows(self, tables: list[int]) -> list[int]:
        """The first rows of these tables in the codebook."""
        return [table * self.num_rows for table in tables]

    def arrange(self, learned: Tensor, hashed: Tensor) -> Tensor:
        """Rows of the codebook `(n, columns, terms)`, from rows within the clustered tables and the helpers."""
        hashed = hashed.view(learned.shape[0], self.num_columns, self.num_helpers)
        rows = torch.cat([learned.unsqueeze(-1), hashed], dim=-1)  # (n, num_columns, num_terms)
        return stack_rows(rows.flatten(1), self.num_rows).view(-1, *self.slots)

    def clustered_rows(self, rows: Tensor, column: int) -> Tensor:
        """Rows of the codebook, from rows within the clustered table of a column."""
        return rows + self.clustered[column] * self.num_rows

    def helper_rows(self) -> Tensor:
        """All rows of the codebook that belong to helpers."""
        starts = torch.tensor(self.first_rows(self.helpers), dtype=torch.int64, device="cpu")
        return (starts.unsqueeze(-1) + torch.arange(self.num_rows, device="cpu")).flatten()
