"""The one way into every lookup of rows: compiled loops on the CPU, plain torch everywhere else.

A table, or a collection of tables, owns a `Lookup` and tells it what its rows come from (`RowTable`). The lookup picks
the backend at every call and keeps the launch plan of compiled loops, which it makes again when a table has changed.

| backend | where |
|---|---|
| compiled loops | eager code, tables on the CPU |
| operator `torch.ops.cce.look_up` | inside `torch.compile`, tables on the CPU: the same loops |
| plain torch | everything else: GPUs, tracers, `torch.export`, `torch.func`, other types, no numba |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import ref

import torch
from torch import Tensor, nn

from cce import compiled
from cce.compiled import KINDS
from cce.indexing import check_ids, versions_of
from cce.kernels import operator
from cce.kernels.cpu.lookup import is_eager, is_ready, look_up
from cce.kernels.cpu.plan import MAX_ROWS, PLAIN_TYPES, Launch, LaunchPlan
from cce.kernels.layout import gather_sum

if TYPE_CHECKING:
    from cce.kernels.cpu.gradients import Bags
    from cce.kernels.layout import Layout

ID_TYPES = (torch.int32, torch.int64)
FLOAT_TYPES = tuple(KINDS)  # a compiled graph that had read an entry of KINDS would check it at every call


class RowTable(Protocol):
    """A table whose vectors are sums of rows of one codebook."""

    @property
    def codebook(self) -> Tensor:
        """`(num_rows, width)`."""

    @property
    def sparse(self) -> bool:
        """Whether its gradient is sparse."""

    def layout(self) -> Layout:
        """Which rows an id adds up."""

    def modules(self) -> Iterator[nn.Module]:
        """The table and all its parts, some of which are `Versioned`."""


class Lookup:
    """Looks up ids in some tables, which it does not keep alive.

    names: of the features, for errors.
    """

    def __init__(self, tables: Sequence[RowTable], names: Sequence[str] = ()) -> None:
        self._tables = [ref(table) for table in tables]
        self.names = tuple(names)
        self.plan: LaunchPlan | None = None
        self._launch: Launch | None = None
        self.handle = operator.register(self)

    def __call__(self, ids: Tensor, *, bags: Bags | None = None, shape: Sequence[int] | None = None) -> Tensor:
        """Vectors `(batch, Σ dim)`, or of another `shape`, of ids `(batch, features)`; padding gives zeros.

        Ids of a single table may be `(batch)`. With bags, sums over them of ids `(n)`.
        """
        if ids.dtype not in ID_TYPES:
            raise TypeError(f"ids must be int32 or int64, got {ids.dtype}.")
        tables = self.tables()
        codebooks = [table.codebook for table in tables]
        launch = self.find_launch(codebooks) if is_eager() and _are_readable(ids, bags) else None
        if launch is not None:
            plain = None
            if not is_ready(launch, bags):
                own = ids.view(len(ids), len(tables)) if bags is None else ids
                plain = partial(_look_up_apart, tables, own, bags)
            return look_up(launch, ids, codebooks, bags=bags, shape=shape, sparse=tables[0].sparse, plain=plain)
        if bags is None:
            ids = ids.view(ids.shape[0], len(tables))  # len(ids) would make a traced size a constant
        if bags is None and _suits_operator(tables, ids):
            vectors: Tensor = torch.ops.cce.look_up(ids, codebooks, self.handle, torch.is_grad_enabled())[0]
        else:
            vectors = _look_up_apart(tables, ids, bags)
        return vectors if shape is None else vectors.view(shape)

    def forget(self) -> None:
        """Let go of the plan, which holds what the tables were made of; compiled graphs still find this lookup."""
        self.plan = self._launch = None

    def tables(self) -> list[RowTable]:
        """The tables, while they live."""
        return [table() for table in self._tables]  # type: ignore[misc]

    def find_launch(self, codebooks: Sequence[Tensor]) -> Launch | None:
        """The last launch if it still holds, or another one; None if compiled loops cannot serve these codebooks."""
        launch = self._launch
        if launch is None or not launch.is_current(codebooks):
            if not _suit_loops(codebooks):
                return None
            launch = self._current_plan(codebooks).bind(codebooks)
            self._launch = None if launch.copies else launch
        return launch

    def _current_plan(self, codebooks: Sequence[Tensor]) -> LaunchPlan:
        """The launch plan of the tables as they are."""
        plan = self.plan
        if plan is None or not plan.is_current(codebooks):
            tables = self.tables()
            versions = versions_of(module for table in tables for module in table.modules())
            plan = LaunchPlan([table.layout() for table in tables], names=self.names, versions=versions)
            self.plan = plan
        return plan


def _are_readable(ids: Tensor, bags: Bags | None) -> bool:
    """Whether compiled loops can read these: real tensors, on the CPU."""
    if not compiled.available or type(ids) not in PLAIN_TYPES or not ids.is_cpu:
        return False
    return bags is None or bags.weights is None or not bags.weights.requires_grad


def _suit_loops(codebooks: Sequence[Tensor]) -> bool:
    """Whether compiled loops can read these: real tensors, on the CPU, of one float type."""
    return all(type(codebook) in PLAIN_TYPES for codebook in codebooks) and _are_alike(codebooks)


def _are_alike(codebooks: Sequence[Tensor]) -> bool:
    dtype = codebooks[0].dtype
    return dtype in FLOAT_TYPES and all(
        codebook.device.type == "cpu" and codebook.dtype is dtype and codebook.shape[0] <= MAX_ROWS
        for codebook in codebooks
    )


def _suits_operator(tables: Sequence[RowTable], ids: Tensor) -> bool:
    """Inside `torch.compile` on the CPU. An exported program stays free of our operators: it must run without us."""
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting() or not compiled.available:
        return False
    is_dense = not any(table.sparse for table in tables)
    return is_dense and ids.device.type == "cpu" and _are_alike([table.codebook for table in tables])


# -- one table after the other -----------------------------------------------------------------------------------------


def _look_up_apart(tables: Sequence[RowTable], ids: Tensor, bags: Bags | None) -> Tensor:
    if not compiled.available and not torch.compiler.is_compiling():
        compiled.warn_plain()
    if bags is None:
        vectors = [_look_up_one(table, column) for table, column in zip(tables, ids.unbind(1), strict=True)]
    else:
        vectors = [_pool_one(table, ids, bags, place) for place, table in enumerate(tables)]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=1)


def _look_up_one(table: RowTable, ids: Tensor) -> Tensor:
    """Vectors `(n, dim)` of ids `(n)`, in plain torch."""
    layout = table.layout()
    check_ids(ids, layout.num_embeddings)
    vectors = gather_sum(table.codebook, layout.rows(ids.long()), sparse=table.sparse)
    left_out = layout.left_out(ids)
    return vectors if left_out is None else vectors.masked_fill(left_out.unsqueeze(-1), 0)


def _pool_one(table: RowTable, ids: Tensor, bags: Bags, place: int) -> Tensor:
    """Sums `(batch, dim)` over the bags of one feature."""
    offsets = bags.offsets[place * bags.batch : (place + 1) * bags.batch + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    vectors = _look_up_one(table, ids[first:last])
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))  # half precision cannot add up many
    if bags.weights is not None:
        wide = wide * bags.weights[first:last].unsqueeze(-1).to(wide.dtype)
    bag = torch.arange(bags.batch, device=ids.device).repeat_interleave(offsets.diff())
    return wide.new_zeros(bags.batch, vectors.shape[1]).index_add(0, bag, wide).to(vectors.dtype)
