"""Gradients of int8 rows that wait for a step: summed for each id that occurred, with how often it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cce.embeddings.admission import seen_before, wanted
from cce.indexing import NO_ID
from cce.kernels import int8 as loops

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

Array = np.ndarray[Any, Any]
NEVER = 1 << 62


@dataclass(slots=True)
class Gradients:
    """Gradients of several tables in common arrays; the record of a table says where its own begin."""

    integers: Tensor  # (3, n) int64: ids, rows, occurrences
    sums: Tensor  # (n, dim)
    starts: Array  # (tables + 1)
    records: Array  # (tables) of loops.GRADIENTS

    @classmethod
    def empty(cls, starts: Array, dim: int) -> Gradients:
        """Room for the gradients of ids that begin at `starts`, on the CPU."""
        total = int(starts[-1])
        integers, sums = torch.empty(3, total, dtype=torch.int64), torch.empty(total, dim)
        return cls(integers, sums, starts, _locate(integers, sums, starts))


@dataclass(slots=True)
class Pending:
    """Gradients of one table that wait for a step: those of distinct ids, in the order in which they first occurred."""

    all: Gradients
    index: int  # of the table
    count: int
    norm: float  # of the sums of ids that will be moved, as the table's anchor has it
    is_finite: bool
    version: int  # of the table, at which rows were found

    @classmethod
    def of(cls, ids: Tensor, rows: Tensor, occurrences: Tensor, sums: Tensor, version: int) -> Pending:
        """Gradients of one table, whose norm is not known yet."""
        integers, starts = torch.stack([ids, rows, occurrences]), np.array([0, len(ids)])
        sums = sums.contiguous()
        gradients = Gradients(integers, sums, starts, _locate(integers, sums, starts))
        gradients.records["num_ids"] = len(ids)
        return cls(gradients, 0, len(ids), 0.0, is_finite=True, version=version)

    @property
    def ids(self) -> Tensor:
        """Distinct ids `(n)`."""
        return self.all.integers[0, self._own]

    @property
    def rows(self) -> Tensor:
        """Their rows `(n)`, 0 where they have none."""
        return self.all.integers[1, self._own]

    @property
    def occurrences(self) -> Tensor:
        """How often they occurred `(n)`."""
        return self.all.integers[2, self._own]

    @property
    def sums(self) -> Tensor:
        """Their gradients `(n, dim)`."""
        return self.all.sums[self._own]

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return self.count * (3 * 8 + 4 * self.all.sums.shape[1])

    @property
    def address(self) -> int:
        """Of the record that compiled loops read."""
        return int(self.all.records.ctypes.data) + self.index * loops.GRADIENTS.itemsize

    @property
    def _own(self) -> slice:
        start = int(self.all.starts[self.index])
        return slice(start, start + self.count)


def _locate(integers: Tensor, sums: Tensor, starts: Array) -> Array:
    records = np.zeros(len(starts) - 1, loops.GRADIENTS)
    row_nbytes = 8 * integers.shape[1]
    for index, name in enumerate(("ids", "rows", "occurrences")):
        records[name] = integers.data_ptr() + index * row_nbytes + 8 * starts[:-1]
    records["sums"] = sums.data_ptr() + 4 * sums.shape[1] * starts[:-1]
    return records


# -- the definition ----------------------------------------------------------------------------------------------------


def sum_gradients(
    table: Int8Rows, ids: Tensor, grad: Tensor, padding: int = NO_ID, waiting: Tensor | None = None
) -> Pending:
    """Sum the gradients `(n, dim)` of ids `(n)` of one table; `waiting` of ids whose rows another rank has."""
    kept = ids != padding
    ids, grad = ids[kept], grad[kept]
    return _distinct(table, ids, torch.ones_like(ids), grad, None if waiting is None else waiting[kept])


def merge_pending(table: Int8Rows, parts: Sequence[Pending], *, has_waits: bool = False) -> Pending:
    """The gradients of several backward passes, or processes, together.

    has_waits: whether rows are those of another rank, and `rows` instead what it has said of `waits`.
    """
    ids, rows, occurrences, sums = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("ids", "rows", "occurrences", "sums")
    )
    merged = _distinct(table, ids, occurrences, sums, rows if has_waits else None)
    merged.is_finite = all(part.is_finite for part in parts)
    return merged


def waits(table: Int8Rows, ids: Tensor, rows: Tensor) -> Tensor:
    """Occurrences until each of these ids gets a row: 0 if it has one, very many if it gets none."""
    has_space = table.num_rows < table.most_rows
    left = (table.needed - seen_before(table, ids)).clamp(min=1) if has_space else torch.full_like(ids, NEVER)
    return torch.where(rows > 0, 0, left)


def first_occurrences(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct ids in the order in which they first occur, and which of them each id is."""
    distinct, inverse = ids.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    indices = torch.arange(len(ids), device=ids.device)
    first = torch.full_like(distinct, len(ids)).scatter_reduce(0, inverse, indices, "amin")
    order = first.argsort()
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=ids.device)
    return distinct[order], place[inverse]


def _distinct(
    table: Int8Rows, ids: Tensor, occurrences: Tensor, values: Tensor, waiting: Tensor | None = None
) -> Pending:
    distinct, inverse = first_occurrences(ids)
    counts = torch.zeros_like(distinct).index_add_(0, inverse, occurrences)
    sums = values.new_zeros(len(distinct), table.dim).index_add_(0, inverse, values)
    squares = sums.double().square().sum(1)
    if waiting is None:
        rows = table.find(distinct).to(ids.device)
        left = waits(table, distinct, rows)
    else:
        rows = left = torch.zeros_like(distinct).scatter_(0, inverse, waiting)
    is_moved = (left == 0) | wanted(table, distinct, table.needed - left, counts, table.steps + 1)
    found = Pending.of(distinct, rows, counts, sums, table.live.moves)
    found.norm = float((squares if table.trains_unseen else squares[is_moved]).sum().sqrt())
    found.is_finite = bool(squares.isfinite().all())
    return found
