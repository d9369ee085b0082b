"""Ids in, vectors of int8 rows out, and their gradients on the way back: one call for all tables of a model.

Torch has no gradients of integers. Each table has an *anchor*, a parameter of one value, and what autograd hands to the
anchor is the norm of the table's gradients, while the gradients themselves wait in the table for the optimizer's step.
So whatever torch does to gradients as a whole, clipping them by their norm or unscaling them, it does to the anchor's,
and the step does the same to the rows: it takes their gradients times what has become of the norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from cce import compiled
from cce.compiled import RUNS, longest_run, parallel_for
from cce.embeddings.live_rows import BY_HANDLE
from cce.embeddings.row_gradients import Gradients, Pending, merge_pending, sum_gradients
from cce.indexing import NO_ID, check_ids
from cce.kernels import Bags, is_eager
from cce.kernels import int8 as loops

if TYPE_CHECKING:
    from cce.embeddings.clusterable import Finalizable
    from cce.embeddings.int8_rows import Int8Rows

Array = np.ndarray[Any, Any]

PARALLEL_VALUES = 1 << 18  # below this many, handing work to threads costs more than it saves
NO_OPTIMIZER = (
    "{name} trains as int8 rows, which no optimizer moves: make one of cce.optim, such as "
    "cce.optim.Adam(model, lr=1e-3), after cce.compress and before the first backward."
)


@dataclass(slots=True)
class Saved:
    """What a lookup saves for its backward pass: the ids of each table, one after the other, and their rows."""

    ids: Tensor  # (n) int64
    rows: Tensor
    bags: Tensor  # (n) int32: which bag each id is in; empty if each is its own
    starts: Array  # (tables + 1): where the ids of each table begin
    versions: list[int]  # of the tables, when rows were found
    weights: Tensor | None = None  # (n) float32


class RowTables:
    """Tables of int8 rows of one dimension that are looked up together; `names` are for errors."""

    _compiled: ClassVar[set[tuple[int, ...]]] = set()  # runs that lookups are compiled for

    def __init__(self, tables: Sequence[Int8Rows], paddings: Sequence[int | None], names: Sequence[str] = ()) -> None:
        self.tables, self.names, self.dim = list(tables), list(names), tables[0].dim
        self.paddings = np.array([NO_ID if padding is None else padding for padding in paddings])
        self._addresses = np.array([table.live.address for table in self.tables])
        self._run = RUNS[longest_run(self.dim)]

    def look_up(self, ids: Tensor, anchors: Sequence[nn.Parameter], *, bags: Bags | None = None) -> Tensor:
        """Vectors `(batch, tables, dim)` of ids `(batch, tables)`, or sums over bags of ids `(n)`.

        Bags, and their weights in float32, must be contiguous, and `can_pool`.
        """
        if torch.is_grad_enabled() and any(anchor.requires_grad for anchor in anchors):
            return _LookUp.apply(self, ids, bags, *anchors)  # type: ignore[no-any-return, no-untyped-call]
        return self.read(ids, bags=bags).to(anchors[0].dtype)

    def in_loops(self, ids: Tensor) -> bool:
        """Whether compiled loops look these ids up."""
        if not is_eager():
            return False
        if not compiled.available:
            compiled.warn_plain()
            return False
        return ids.is_cpu and all(table.can_loop for table in self.tables)

    def read(self, ids: Tensor, *, bags: Bags | None = None, saved: Saved | None = None) -> Tensor:
        """The same in float32, without gradients; what a backward pass needs goes to `saved`.

        Plain torch reads while the loops are still compiled, unless something is to be saved.
        """
        if not self.in_loops(ids) or (saved is None and bags is None and not self.is_ready()):
            return self._read_plain(ids)
        batch = len(ids) if bags is None else bags.batch
        shape = (batch, len(self.tables), self.dim)
        out = torch.empty(shape) if bags is None else torch.zeros(shape)
        ids = ids.long() if bags is None else ids.long().contiguous()
        record = self._record(ids, batch, out, bags, saved)
        wrong: list[int] = []

        def work(first: int, last: int) -> None:
            found = loops.look_up(self.addresses(), self.paddings, record, first, last, self._run)
            wrong.extend([found] if found >= 0 else [])

        _share_out(work, batch, len(ids) * self.dim)
        for index in sorted(wrong)[:1]:
            own = ids[:, index] if bags is None else ids[slice(*bags.offsets[index * batch :: batch][:2].tolist())]
            self._check(own, index)
        return out

    def is_ready(self) -> bool:
        """Whether the loops of a lookup are compiled; if not, that begins in the background."""
        if self._run not in self._compiled and compiled.available:
            arguments = (self._addresses, self.paddings, np.empty(1, loops.BATCH), 0, 0, self._run)
            if compiled.is_compiled(loops.look_up, arguments):
                self._compiled.add(self._run)
        return self._run in self._compiled

    def can_pool(self, ids: Tensor, weights: Tensor | None, dtype: torch.dtype) -> bool:
        """Whether bags of these ids are looked up here; if not, pool vectors of single ids."""
        is_float = dtype is torch.float32 and (weights is None or not weights.requires_grad)
        return is_float and self.in_loops(ids) and self.is_ready()

    def addresses(self) -> Array:
        """Where compiled loops find the tables."""
        for table in self.tables:
            if table.live.is_old or table.live.was_sent:
                table.describe()
        return self._addresses

    def _record(self, ids: Tensor, batch: int, out: Tensor, bags: Bags | None, saved: Saved | None) -> Array:
        """The record of a batch."""
        strides = (8 * ids.stride(0), 8 * ids.stride(1)) if bags is None else (8, 0)
        offsets = weights = 0
        if bags is not None:
            offsets, weights = bags.offsets.data_ptr(), 0 if bags.weights is None else bags.weights.data_ptr()
        kept = [0] * 3 if saved is None else [each.data_ptr() for each in (saved.ids, saved.rows, saved.bags)]
        numbers = [ids.data_ptr(), *strides, batch, offsets, weights, out.data_ptr(), *kept]
        return np.array(numbers, np.int64).view(loops.BATCH)

    def _read_plain(self, ids: Tensor) -> Tensor:
        vectors = []
        columns = zip(self.tables, self.paddings.tolist(), ids.unbind(1), strict=True)
        for index, (table, padding, column) in enumerate(columns):
            self._check(column, index)
            found = table.read(column.long()).to(ids.device)
            vectors.append(found.masked_fill((column == padding).unsqueeze(-1), 0))
        return torch.stack(vectors, dim=1)

    def _check(self, ids: Tensor, index: int) -> None:
        name = f" of {self.names[index]}" if self.names else ""
        check_ids(ids, self.tables[index].num_embeddings, what=f"ids{name}")

    # -- backward ------------------------------------------------------------------------------------------------------

    def new_saved(self, ids: Tensor, bags: Bags | None, *, always: bool = False) -> Any:
        """What a lookup saves, if it is to: plain torch alone reads while loops are compiled."""
        if not always and not (self.in_loops(ids) and (bags is not None or self.is_ready())):
            return None
        batch, num_ids = len(ids) if bags is None else bags.batch, ids.numel()
        starts = np.zeros(len(self.tables) + 1, np.int64)
        if batch:
            starts[:] = range(0, num_ids + 1, batch) if bags is None else bags.offsets[::batch]
        listed, versions = torch.empty(2, num_ids, dtype=torch.int64), [table.live.moves for table in self.tables]
        if bags is None:
            return Saved(listed[0], listed[1], torch.empty(0, dtype=torch.int32), starts, versions)
        return Saved(listed[0], listed[1], torch.empty(num_ids, dtype=torch.int32), starts, versions, bags.weights)

    def take(self, grad: Tensor, ids: Tensor, saved: Any, anchors: Sequence[Tensor]) -> list[Tensor]:
        """Sum the gradients `(batch, tables, dim)` of a lookup for each id and keep them; what the anchors' grow by."""
        grad = grad.detach().float()
        if saved is None and self.in_loops(ids):  # plain torch has read while loops were compiled, or a graph has
            saved = self.new_saved(ids, None, always=True)
            self.read(ids, saved=saved)
        if saved is None:
            columns = zip(self.tables, ids.long().unbind(1), grad.unbind(1), self.paddings.tolist(), strict=True)
            return self.keep([sum_gradients(*column) for column in columns], anchors)
        if saved.versions != [table.live.moves for table in self.tables]:  # a step was taken in between
            self.find_again(saved)
        return self.keep(self.sum(saved, grad.contiguous()), anchors)

    def merge(self, table: Int8Rows, parts: Sequence[Pending]) -> Pending:
        """The gradients of several backward passes together."""
        return merge_pending(table, parts)

    def keep(self, found: list[Pending], anchors: Sequence[Tensor]) -> list[Tensor]:
        """Keep gradients for the next step; what the anchors' gradients grow by.

        A table may be looked up several times in a model, and a backward pass follow another before the step.
        """
        for table in self.tables:
            if not table.live.has_optimizer:
                raise RuntimeError(NO_OPTIMIZER.format(name=table.name))
        norms = torch.tensor([each.norm for each in found], dtype=anchors[0].dtype)
        grown = list(norms.to(anchors[0].device).unsqueeze(1).unbind())
        for index, (table, new, norm) in enumerate(zip(self.tables, found, norms.tolist(), strict=True)):
            live, anchor, new.norm = table.live, anchors[index], norm
            if live.pending is None or live.has_used(anchor):
                live.pending = new
            else:
                held, live.pending = live.pending, self.merge(table, [live.pending, new])
                together = torch.tensor([live.pending.norm], dtype=anchor.dtype)
                live.pending.norm = float(together)
                grown[index] = (together - held.norm).to(anchor.device)
            live.is_settled = False
        return grown

    def sum(self, saved: Saved, grad: Tensor) -> list[Pending]:
        """The gradients `(batch, tables, dim)` of vectors, summed for each id."""
        gradients = Gradients.empty(saved.starts, self.dim)
        numbers = [0, 0, 0, len(grad), 0, 0 if saved.weights is None else saved.weights.data_ptr(), grad.data_ptr()]
        numbers += [each.data_ptr() for each in (saved.ids, saved.rows, saved.bags)]
        record, addresses = np.array(numbers, np.int64).view(loops.BATCH), self.addresses()

        def work(first: int, last: int) -> None:
            loops.sum_gradients(
                addresses, self.paddings, record, saved.starts, gradients.records, first, last, self._run
            )

        _share_out(work, len(self.tables), len(saved.ids) * self.dim)
        norms, are_finite = np.sqrt(gradients.records["square"]), np.isfinite(gradients.records["full_square"])
        parts = zip(gradients.records["num_ids"].tolist(), norms.tolist(), are_finite.tolist(), strict=True)
        return [
            Pending(gradients, index, count, norm, is_finite, self.tables[index].live.moves)
            for index, (count, norm, is_finite) in enumerate(parts)
        ]

    def find_again(self, saved: Saved) -> None:
        """Find rows again that have moved since the lookup."""
        for table, first, last in zip(self.tables, saved.starts, saved.starts[1:], strict=False):
            saved.rows[first:last] = table.find(saved.ids[first:last])


def row_tables(tables: Sequence[Int8Rows], paddings: Sequence[int | None], names: Sequence[str] = ()) -> RowTables:
    """Tables that are looked up together, all of which are sharded or none."""
    sharded = [table.name for table in tables if table.shards is not None]
    if not sharded:
        return RowTables(tables, paddings, names)
    if len(sharded) < len(tables):
        raise ValueError(f"tables that are looked up together must all be sharded, or none, got {', '.join(sharded)}.")
    from cce.embeddings.sharded_lookup import ShardedTables

    return ShardedTables(tables, paddings, names)


def compiled_look_up(
    tables: Sequence[Int8Rows], ids: Tensor, anchors: Sequence[nn.Parameter], paddings: Sequence[int | None]
) -> Tensor:
    """`RowTables.look_up` of ids `(batch, tables)` in a graph of `torch.compile`: a node with handles of the rows."""
    handles = [table.live.handle for table in tables]
    numbers = [NO_ID if padding is None else padding for padding in paddings]
    found: Tensor = torch.ops.cce.look_up_rows(ids, anchors, handles, numbers)
    return found


def sum_bags(
    table: Finalizable, ids: Tensor, offsets: Tensor, weights: Tensor | None, padding: int | None
) -> Tensor | None:
    """Sums `(bags, dim)` of the vectors of a table with int8 rows, with the end of the last bag in `offsets`.

    None where vectors of single ids are to be pooled instead.
    """
    tables = row_tables([table.rows], [padding])
    if not tables.can_pool(ids, weights, table.anchor.dtype) or table.padding_idx not in (None, padding):
        return None
    table.check_not_averaged()
    bags = Bags(offsets.contiguous(), len(offsets) - 1, None if weights is None else weights.float().contiguous())
    vectors: Tensor = tables.look_up(ids, [table.anchor], bags=bags)
    return vectors.squeeze(1)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tables: RowTables, ids: Tensor, bags: Bags | None, *anchors: nn.Parameter) -> Tensor:
        ctx.tables, ctx.ids, ctx.anchors = tables, ids, anchors
        ctx.saved = tables.new_saved(ids, bags)
        return tables.read(ids, bags=bags, saved=ctx.saved).to(anchors[0].dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        tables: RowTables = ctx.tables
        return (None, None, None, *tables.take(grad, ctx.ids, ctx.saved, ctx.anchors))


def _share_out(work: Callable[[int, int], None], size: int, num_values: int) -> None:
    """`work(first, last)` on parts of `range(size)`, on several threads where that pays."""
    num_parts = min(size, torch.get_num_threads()) if num_values >= PARALLEL_VALUES else 1
    if num_parts <= 1:
        work(0, size)
        return
    cuts = [size * index // num_parts for index in range(num_parts + 1)]
    parallel_for(lambda index: work(cuts[index], cuts[index + 1]), num_parts)


# -- torch.compile -----------------------------------------------------------------------------------------------------


def _find(handles: Sequence[int], paddings: Sequence[int]) -> RowTables:
    return row_tables([BY_HANDLE[handle] for handle in handles], paddings)


def _look_up_rows(ids: Tensor, anchors: Sequence[Tensor], handles: Sequence[int], paddings: Sequence[int]) -> Tensor:
    tables = _find(handles, paddings)
    for table, anchor in zip(tables.tables, anchors, strict=True):
        table.check_not_averaged(anchor)
    return tables.read(ids).to(anchors[0].dtype)


def _fake_look_up_rows(
    ids: Tensor, anchors: Sequence[Tensor], handles: Sequence[int], paddings: Sequence[int]
) -> Tensor:
    del paddings
    return anchors[0].new_empty(*ids.shape, BY_HANDLE[handles[0]].dim)


def _take_gradients(grad: Tensor, ids: Tensor, handles: Sequence[int], paddings: Sequence[int]) -> list[Tensor]:
    """Keep gradients for the next step, as the eager backward does; a graph has no part in what the rows hold."""
    tables = _find(handles, paddings)
    anchors = [anchor for table in tables.tables if table.live.anchor and (anchor := table.live.anchor()) is not None]
    assert len(anchors) == len(handles)  # they are in the graph
    return [grown.clone() for grown in tables.take(grad, ids, None, anchors)]


def _fake_take_gradients(grad: Tensor, ids: Tensor, handles: Sequence[int], paddings: Sequence[int]) -> list[Tensor]:
    del ids, paddings
    return [grad.new_empty(1) for _ in handles]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    ids, _, ctx.handles, ctx.paddings = inputs
    ctx.save_for_backward(ids)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return None, torch.ops.cce.take_gradients(grad, *ctx.saved_tensors, ctx.handles, ctx.paddings), None, None


_library: Any = torch.library.Library("cce", "FRAGMENT")  # type: ignore[no-untyped-call]  # lives as long as the module
_library.define("look_up_rows(Tensor ids, Tensor[] anchors, int[] handles, int[] paddings) -> Tensor")
_library.define("take_gradients(Tensor grad, Tensor ids, int[] handles, int[] paddings) -> Tensor[]")
_library.impl("look_up_rows", _look_up_rows, "CompositeExplicitAutograd")
_library.impl("take_gradients", _take_gradients, "CompositeExplicitAutograd")
torch.library.register_fake("cce::look_up_rows", _fake_look_up_rows, lib=_library)
torch.library.register_fake("cce::take_gradients", _fake_take_gradients, lib=_library)
torch.library.register_autograd("cce::look_up_rows", _backward, setup_context=_set_up, lib=_library)
