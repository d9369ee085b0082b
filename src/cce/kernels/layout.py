"""`Layout`: what a lookup must know of a table, without the table's codebook."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cce.indexing import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cce.indexing import RowSource


@dataclass(frozen=True)
class Layout:
    """A table `T = H · M` of `num_embeddings` ids, without its M.

    A vector is `columns` pieces of `width` values side by side; a piece is the sum of `terms` rows of the codebook,
    which `sources` name, slot by slot: all terms of the first column, then of the second, and so on.
    """

    num_embeddings: int
    columns: int
    terms: int
    width: int
    num_rows: int  # of the codebook
    sources: Sequence[RowSource]
    padding_idx: int | None = None

    @property
    def dim(self) -> int:
        """The embedding dimension."""
        return self.columns * self.width

    @property
    def num_slots(self) -> int:
        """Rows that an id adds up, over all columns."""
        return self.columns * self.terms

    @property
    def apart(self) -> Layout:
        """The same with every term as a column of its own."""
        return replace(self, columns=self.num_slots, terms=1)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `(n, columns, terms)` of ids `(n)`, in plain torch."""
        return rows_of(self.sources, ids).view(-1, self.columns, self.terms)
