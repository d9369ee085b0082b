"""`Layout`: what a lookup must know of a table, without the table's codebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cce.indexing import RowMap, RowSource, rows_of

if TYPE_CHECKING:
    from torch import Tensor


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
    row_map: RowMap | None = None  # ids that have no row in it have the zero vector; sources take the others' rows

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
        """Rows `(n, columns, terms)` of ids `(n)`, in plain torch; those of ids without a row mean nothing."""
        if self.row_map is not None:
            ids = (self.row_map(ids) - 1).clamp(min=0)
        return rows_of(self.sources, ids).view(-1, self.columns, self.terms)

    def left_out(self, ids: Tensor) -> Tensor | None:
        """Which ids have the zero vector: the padding, and those without a row; None if there can be none."""
        without = None if self.row_map is None else self.row_map(ids.long()) == 0
        if self.padding_idx is None:
            return without
        padding = ids == self.padding_idx
        return padding if without is None else padding | without
