"""Compiled lookups of frozen tables, by the loops that training uses (`cce.kernels`), several tables in one call.

Plain torch, in `FrozenTable.embed`, is the definition, and serves everywhere else: in exported programs, for tables of
other kinds, where compiled loops are off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from cce import compiled
from cce.kernels import LaunchPlan, bind_int8, is_eager, look_up_ids, look_up_int8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cce.serving.frozen_tables import FrozenRows, FrozenTable

ID_TYPES = (torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def are_readable(ids: Any) -> bool:
    """Whether compiled loops can read these: a real tensor of ids on the CPU, outside any tracer."""
    return type(ids) is Tensor and ids.is_cpu and ids.dtype in ID_TYPES and is_eager()


def known_ids(ids: Tensor, num_embeddings: int) -> Tensor:
    """The ids, with 0, the id of unseen values, for those outside `[0, num_embeddings)`."""
    return torch.where((ids >= 0) & (ids < num_embeddings), ids, 0)


class RowLookup:
    """Vectors of float32 of ids `(B, F)`, one table for each column; `suits` says for which tables."""

    def __init__(self, tables: Sequence[FrozenRows]) -> None:
        self.num_embeddings = [table.num_embeddings for table in tables]
        plan = LaunchPlan([table.layout for table in tables])
        codebooks = [table.rows.values for table in tables]
        scales = [table.rows.scale for table in tables]
        self._state = [*codebooks, *scales]  # alive while their addresses are used
        self._look_up: Callable[[Tensor, Sequence[int]], Tensor]
        if codebooks[0].dtype is torch.int8:
            int8 = bind_int8(plan, codebooks, scales)  # type: ignore[arg-type]
            self._look_up = lambda ids, shape: look_up_int8(int8, ids, shape)
        else:
            floats = plan.bind(codebooks)
            self._look_up = lambda ids, shape: look_up_ids(floats, ids, shape, save=False)[0]

    @staticmethod
    def suits(tables: Sequence[FrozenTable]) -> bool:
        """Whether compiled loops can serve these tables."""
        return (
            compiled.available
            and bool(tables)
            and all(map(_suits, tables))
            and len({table.rows.values.dtype for table in tables}) == 1  # type: ignore[union-attr]
        )

    def __call__(self, ids: Tensor, shape: Sequence[int]) -> Tensor:
        """Vectors of ids `(B, F)`, or `(B)` for a single table, in this shape."""
        try:
            return self._look_up(ids, shape)
        except IndexError:
            columns = ids.view(len(ids), -1).unbind(1)
            known = [known_ids(column, size) for column, size in zip(columns, self.num_embeddings, strict=True)]
            return self._look_up(torch.stack(known, dim=1), shape)


class LookupHolder(nn.Module):
    """A module that looks up by compiled loops, and keeps their `RowLookup` while its tables stay where they are."""

    _lookup: RowLookup | Literal[False] | None = None  # False where compiled loops cannot serve; None: not known yet

    def find_lookup(self, tables: Sequence[FrozenTable]) -> RowLookup | Literal[False]:
        """The lookup of these tables, always the same ones."""
        if self._lookup is None:
            self._lookup = RowLookup(tables) if RowLookup.suits(tables) else False  # type: ignore[arg-type]
        return self._lookup

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        self._lookup = None  # addresses change
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks up by itself, with other addresses."""
        return self.__dict__ | {"_lookup": None}


def _suits(table: FrozenTable) -> bool:
    from cce.serving.frozen_tables import FrozenRows

    return (
        isinstance(table, FrozenRows)
        and not table.product
        and table.weights is None
        and table.rows.values.dtype in (*FLOATS, torch.int8)
        and all(tensor.is_cpu and tensor.is_contiguous() for tensor in table.tensors().values())
    )
