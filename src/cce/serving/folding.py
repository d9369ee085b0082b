"""Helper tables of CCE, left out of a frozen table where that changes no bit.

A helper that is all zeros adds nothing. Otherwise, where few pairs of a clustered row and a helper row occur among the
ids, every pair becomes a row of its own, and the pointer names the pair: one row is read instead of two, and nothing is
hashed. It is done only where it makes the table no larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.indexing import PointerStore, blocks, pointer_nbytes

if TYPE_CHECKING:
    from cce.embeddings import ClusteredEmbedding

LARGEST_PAIRS = 1 << 26  # kinds of pairs that are marked as seen: 64 MB


@dataclass(frozen=True)
class Folded:
    """Columns of one table each, with as many rows, and the pointers to them."""

    codebook: Tensor  # (num_columns · num_rows, width)
    pointers: PointerStore


def has_zero_helpers(table: ClusteredEmbedding) -> bool:
    """Whether helpers add nothing to any vector."""
    return not bool(table.tables[:, 1:].any())


def fold_helpers(table: ClusteredEmbedding, itemsize: int) -> Folded | None:
    """The table with one row for each pair that occurs; None where that is not exact or makes it larger."""
    learned = table.assignments
    if table.slots != (table.num_columns, 2) or learned.num_learned < table.num_embeddings:
        return None  # pieces that add up have no pairs of their own, and hashed ids no pointer that could name one
    if table.num_rows**2 > LARGEST_PAIRS:
        return None
    seen = _pairs(table, _most_rows(table, itemsize))
    return None if seen is None else _fold(table, seen)


def _most_rows(table: ClusteredEmbedding, itemsize: int) -> int:
    """The most rows of a column with which the folded table is no larger."""
    sizes, row = (table.num_embeddings, table.num_columns), table.num_columns * table.width * itemsize
    limit = pointer_nbytes(*sizes, table.num_rows) + 2 * table.num_rows * row

    def fits(num_rows: int) -> bool:
        return pointer_nbytes(*sizes, num_rows) + num_rows * row <= limit

    low, high = 1, 2 * table.num_rows  # so many rows take the bytes of the codebook as it is
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _numbered(table: ClusteredEmbedding, ids: Tensor) -> Tensor:
    """The pairs `(n, num_columns)` of ids, as numbers: clustered row · num_rows + helper row."""
    learned: Tensor = table.assignments(ids)
    hashed: Tensor = table.helper(ids.to(table.helper.seeds.device)).cpu()
    return learned * table.num_rows + hashed


def _pairs(table: ClusteredEmbedding, most: int) -> Tensor | None:
    """Which pairs occur in each column, `(num_columns, num_rows²)`; None once there are more than `most` in one."""
    seen = torch.zeros(table.num_columns, table.num_rows**2, dtype=torch.bool, device="cpu")
    columns = torch.arange(table.num_columns, device="cpu")
    for ids in blocks(table.num_embeddings):
        seen[columns, _numbered(table, ids)] = True
        if int(seen.sum(1).max()) > most:
            return None
    return seen


def _fold(table: ClusteredEmbedding, seen: Tensor) -> Folded:
    num_rows, num_columns = table.num_rows, table.num_columns
    most = int(seen.sum(1).max())
    tables = table.tables.cpu()
    codebook = tables.new_zeros(num_columns, most, table.width)
    for column in range(num_columns):
        pairs = seen[column].nonzero().squeeze(-1)
        rows = tables[column, 0, pairs // num_rows] + tables[column, 1, pairs % num_rows]
        codebook[column, : len(pairs)] = rows
    places = seen.cumsum(1) - 1
    pointers = PointerStore(table.num_embeddings, num_columns, most)
    columns = torch.arange(num_columns, device="cpu")
    for ids in blocks(table.num_embeddings):
        pointers.write(int(ids[0]), places[columns, _numbered(table, ids)])
    return Folded(codebook.flatten(0, 1), pointers)
