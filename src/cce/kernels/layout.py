"""What a lookup does, in plain torch: `gather_sum`; and what it must know of a table without the codebook: `Layout`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.nn import functional

from cce.indexing import RowMap, RowSource, rows_of


@dataclass(frozen=True)
class Layout:
    """A table `T = H · M` of `num_embeddings` ids, without its M.

    A vector is `columns` pieces of `width` values side by side; a piece is the sum of `terms` rows of the codebook,
    which `sources` name, slot by slot: all terms of the first column, then of the second, and so on.
    """

    num_embeddings: Any  # an int; None: any ids
    columns: int
    terms: int
    width: int
    num_rows: int  # of the codebook
    sources: Sequence[RowSource]
    padding_idx: int | None = None
    row_map: RowMap | None = None  # ids that have no row in it have the zero vector; sources take the others' rows

    @property
    def dim(self) -> int:
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


def gather_rows(codebook: Tensor, rows: Tensor, *, sparse: bool = False) -> Tensor:
    """Rows `(*s)` of a codebook `(num_rows, width)` as vectors `(*s, width)`; `sparse` asks for a sparse gradient."""
    if sparse:
        return functional.embedding(rows, codebook, sparse=True)
    # index_select is three times as fast as functional.embedding on the CPU, forward and backward together
    return codebook.index_select(0, rows.reshape(-1)).view(*rows.shape, codebook.shape[1])


def gather_sum(codebook: Tensor, rows: Tensor, weights: Tensor | None = None, *, sparse: bool = False) -> Tensor:
    """Sum the rows of each column over its terms, and set the columns side by side: the definition of a lookup.

    codebook: (num_rows, width);  rows and weights: (batch, columns, terms)  →  (batch, columns · width)
    """
    pieces = gather_rows(codebook, rows, sparse=sparse)  # (batch, columns, terms, width)
    if weights is not None:
        pieces = pieces * weights.to(pieces.dtype).unsqueeze(-1)
    return pieces.sum(dim=-2).flatten(start_dim=1)
