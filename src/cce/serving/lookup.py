"""Compiled lookups of frozen tables, by the loops that training uses (`cce.kernels`), several tables in one call.

Plain torch, in `FrozenTable.embed`, is the definition, and serves everywhere else: in exported programs, for other
tables, where compiled loops are off or not compiled yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from cce import compiled
from cce.kernels import LaunchPlan, bind_int8, is_eager, is_int8_ready, is_ready, look_up_ids, look_up_int8

if TYPE_CHECKING:
    from cce.serving.frozen_tables import FrozenRows, FrozenTable

ID_TYPES = (torch.int32, torch.int64)
TYPES = ({torch.float32}, {torch.int8})


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
        self.is_ready: Callable[[], bool]
        if codebooks[0].dtype is torch.int8:
            int8 = bind_int8(plan, codebooks, scales)  # type: ignore[arg-type]
            self._look_up = lambda ids, shape: look_up_int8(int8, ids, shape)
            self.is_ready = partial(is_int8_ready, int8)
        else:
            floats = plan.bind(codebooks)
            self._look_up = lambda ids, shape: look_up_ids(floats, ids, shape, save=False)[0]
            self.is_ready = partial(is_ready, floats)

    @staticmethod
    def suits(tables: Sequence[FrozenTable]) -> bool:
        """Whether compiled loops can serve these tables: rows of one type, on the CPU."""
        from cce.serving.frozen_tables import FrozenRows

        found = [table for table in tables if isinstance(table, FrozenRows)]
        tensors = [tensor for table in found for tensor in table.tensors().values()]
        return (
            compiled.available
            and 0 < len(found) == len(tables)
            and {table.rows.values.dtype for table in found} in TYPES
            and all(tensor.is_cpu and tensor.is_contiguous() for tensor in tensors)
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
    _waits: RowLookup | None = None  # for its loops to be compiled

    def find_lookup(self, tables: Sequence[FrozenTable]) -> RowLookup | None:
        """The lookup of these tables, always the same ones; None where plain torch serves."""
        if self._lookup is None:
            self._waits = self._waits or (RowLookup(tables) if RowLookup.suits(tables) else None)  # type: ignore[arg-type]
            if self._waits is not None and not self._waits.is_ready():
                return None
            self._lookup, self._waits = self._waits or False, None
        return self._lookup or None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        self._lookup = self._waits = None  # addresses change
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks up by itself, with other addresses."""
        return self.__dict__ | {"_lookup": None, "_waits": None}
