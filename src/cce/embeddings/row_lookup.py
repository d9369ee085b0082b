"""Ids in, vectors of int8 rows out, and their gradients on the way back: one call for all tables of a model.

Torch has no gradients of integers. Each table has an *anchor*, a parameter of one value, and what autograd hands to the
anchor is the norm of the table's gradients, while the gradients themselves wait in the table for the optimizer's step.
So whatever torch does to gradients as a whole, clipping them by their norm or unscaling them, it does to the anchor's,
and the step does the same to the rows: it takes their gradients times what has become of the norm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cce import compiled
from cce.compiled import parallel_for
from cce.embeddings.int8_rows import NO_LINE, Int8Rows, Pending
from cce.indexing import check_ids
from cce.kernels import is_eager
from cce.kernels import training_rows as loops

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]

NO_ROWS = np.empty((0, 0), np.int64)
PARALLEL_VALUES = 1 << 18  # below so many, handing work to threads costs more than it saves
NO_OPTIMIZER = (
    "{name} trains as int8 rows, which no optimizer moves: make one of cce.optim, such as "
    "cce.optim.Adam(model, lr=1e-3), after cce.compress and before the first backward."
)


class RowTables:
    """Tables of int8 rows that are looked up together; `names` are for errors."""

    def __init__(self, tables: Sequence[Int8Rows], paddings: Sequence[int | None], names: Sequence[str] = ()) -> None:
        self.tables, self.names = list(tables), list(names)
        self.paddings = [-1 if padding is None else padding for padding in paddings]
        self._lines: tuple[list[int], Array] = ([], NO_LINE)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def look_up(self, ids: Tensor, anchors: Sequence[nn.Parameter], *, check: bool | None = None) -> Tensor:
        """Vectors `(batch, tables, dim)` of ids `(batch, tables)`."""
        if torch.is_grad_enabled() and any(anchor.requires_grad for anchor in anchors):
            return _LookUp.apply(self, ids, check, *anchors)  # type: ignore[no-any-return, no-untyped-call]
        return self.read(ids, check=check).to(anchors[0].dtype)

    def read(self, ids: Tensor, *, check: bool | None = None, rows: Array = NO_ROWS) -> Tensor:
        """The same in float32, without gradients; `rows` receives the rows `(tables, batch)`, if it has room."""
        if not self._in_loops(ids):
            return self._read_plain(ids, check=check)
        values, out = ids.long().contiguous().numpy(), torch.empty(*ids.shape, self.tables[0].dim)
        lines, scales = self.lines(), np.array([table.live.scale for table in self.tables], np.float32)
        wrong: list[int] = []

        def work(first: int, last: int) -> None:
            found = loops.look_up(lines, scales, values, out.numpy(), rows, first, last)
            wrong.extend([found] if found != loops.EMPTY else [])

        _share_out(work, len(self.tables), out.numel())
        for index in sorted(wrong)[:1]:
            self._check(ids[:, index], index, check=True)
        return out

    def lines(self) -> Array:
        """The tables in numbers, with their paddings; those of the last call, if nothing has moved since."""
        for table in self.tables:
            table.notice_moves()
        moves = [table.moves for table in self.tables]
        if self._lines[0] != moves:
            lines = np.array([table.line() for table in self.tables])
            lines[:, loops.PADDING] = self.paddings
            self._lines = moves, lines
        return self._lines[1]

    def _in_loops(self, ids: Tensor) -> bool:
        if not compiled.available and is_eager():
            compiled.warn_plain()
        return is_eager() and ids.is_cpu and all(table.in_loops for table in self.tables)

    def _read_plain(self, ids: Tensor, *, check: bool | None) -> Tensor:
        vectors = []
        columns = zip(self.tables, self.paddings, ids.unbind(1), strict=True)
        for index, (table, padding, column) in enumerate(columns):
            self._check(column, index, check=check)
            found = table.read(column.long()).to(ids.device)
            vectors.append(found.masked_fill((column == padding).unsqueeze(-1), 0))
        return torch.stack(vectors, dim=1)

    def _check(self, ids: Tensor, index: int, *, check: bool | None) -> None:
        if check is not False:
            name = f" of {self.names[index]}" if self.names else ""
            check_ids(ids, self.tables[index].num_embeddings, always=check is True, what=f"ids{name}")

    # -- backward ------------------------------------------------------------------------------------------------------

    def keep(self, ids: Tensor, rows: Array, grad: Tensor, anchors: Sequence[nn.Parameter]) -> list[Tensor]:
        """Keep the gradients `(batch, tables, dim)` of ids for the next step; what the anchors' gradients grow by.

        A table may be looked up several times in a model, and a backward pass follow another before the step.
        """
        for table in self.tables:
            if not table.has_optimizer:
                raise RuntimeError(NO_OPTIMIZER.format(name=table.name))
        found = self._sum(ids, rows, grad.detach().float())
        norms = torch.cat([each.norm.view(1) for each in found]).to(anchors[0]).unbind()
        grown = []
        for table, new, norm, anchor in zip(self.tables, found, norms, anchors, strict=True):
            live = table.live
            held = None if live.pending is None or table.has_used(anchor) else live.pending
            if held is None:
                new.norm = norm.view(1)
                grown.append(new.norm)
                live.pending, live.is_settled = new, False
            else:
                live.pending = merge_pending(table, [held, new])
                live.pending.norm = live.pending.norm.to(anchor).view(1)
                live.is_settled = False
                grown.append(live.pending.norm - held.norm)
        return grown

    def _sum(self, ids: Tensor, rows: Array, grad: Tensor) -> list[Pending]:
        if not self._in_loops(ids):
            pairs = zip(self.tables, ids.long().unbind(1), grad.unbind(1), self.paddings, strict=True)
            return [sum_plain(table, own, values, padding) for table, own, values, padding in pairs]
        batch, num_tables = ids.shape
        integers = torch.empty(3, num_tables, batch, dtype=torch.int64)
        sums = torch.empty(num_tables, batch, grad.shape[2])
        counts, squares = np.zeros(num_tables, np.int64), np.zeros((num_tables, 2))
        distinct, at, occurrences = integers.numpy()
        arrays = distinct, at, occurrences, sums.numpy()
        values, gradients, lines = ids.long().contiguous().numpy(), grad.contiguous().numpy(), self.lines()

        def work(first: int, last: int) -> None:
            loops.sum_gradients(lines, values, rows, gradients, arrays, counts, squares, first, last)

        _share_out(work, num_tables, grad.numel())
        norms, are_finite = torch.from_numpy(np.sqrt(squares[:, 0])).unbind(), np.isfinite(squares[:, 1]).tolist()
        parts = zip(self.tables, norms, are_finite, counts.tolist(), strict=True)
        return [
            Pending(integers, sums, table.moves, norm, is_finite, count, index)
            for index, (table, norm, is_finite, count) in enumerate(parts)
        ]


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tables: RowTables, ids: Tensor, check: bool | None, *anchors: nn.Parameter) -> Tensor:  # noqa: FBT001
        rows = np.empty(tuple(reversed(ids.shape)), np.int64)
        ctx.tables, ctx.ids, ctx.anchors, ctx.rows = tables, ids, anchors, rows
        ctx.moves = [table.moves for table in tables.tables]
        return tables.read(ids, check=check, rows=rows).to(anchors[0].dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        tables: RowTables = ctx.tables
        if ctx.moves != [table.moves for table in tables.tables]:  # a step was taken in between
            tables.read(ctx.ids, rows=ctx.rows)
        grown = tables.keep(ctx.ids, ctx.rows, grad, ctx.anchors)
        return (None, None, None, *grown)


def sum_plain(table: Int8Rows, ids: Tensor, grad: Tensor, padding: int = -1) -> Pending:
    """The definition of `loops.sum_gradients`, for one table."""
    kept = ids != padding
    ids, grad = ids[kept], grad[kept]
    return _distinct(table, ids, torch.ones_like(ids), grad)


def merge_pending(table: Int8Rows, parts: Sequence[Pending]) -> Pending:
    """The gradients of several backward passes, or processes, together."""
    ids, occurrences = (torch.cat([getattr(part, name) for part in parts]) for name in ("ids", "occurrences"))
    merged = _distinct(table, ids, occurrences, torch.cat([part.sums for part in parts]))
    merged.is_finite = all(part.is_finite for part in parts)
    return merged


def _distinct(table: Int8Rows, ids: Tensor, occurrences: Tensor, values: Tensor) -> Pending:
    distinct, inverse = ids.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    indices = torch.arange(len(ids), device=ids.device)
    first = torch.full_like(distinct, len(ids)).scatter_reduce(0, inverse, indices, "amin")
    order = first.argsort()
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=ids.device)
    inverse, distinct = place[inverse], distinct[order]
    counts = torch.zeros_like(distinct).index_add_(0, inverse, occurrences)
    sums = values.new_zeros(len(distinct), table.dim).index_add_(0, inverse, values)
    rows = table.find(distinct)
    squares = sums.double().square().sum(1)
    is_moved = (rows.to(ids.device) > 0) | (table.seen_before(distinct) + counts >= table.needed)
    own = squares if table.trains_unseen else squares[is_moved]
    integers, is_finite = (
        torch.stack([distinct, rows.to(ids.device), counts]).unsqueeze(1),
        bool(squares.isfinite().all()),
    )
    return Pending(integers, sums.unsqueeze(0), table.moves, own.sum().sqrt(), is_finite, len(distinct))


def _share_out(work: Any, num_tables: int, num_values: int) -> None:
    num_parts = min(num_tables, torch.get_num_threads()) if num_values >= PARALLEL_VALUES else 1
    cuts = [num_tables * index // num_parts for index in range(num_parts + 1)]
    parallel_for(lambda index: work(cuts[index], cuts[index + 1]), num_parts)
