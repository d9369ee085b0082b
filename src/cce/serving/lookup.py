"""`RowLookup`: compiled lookups of one or several frozen tables in one call, where they are on the CPU.

Plain torch, in `FrozenTable.embed`, is the definition, and serves everywhere else: in exported programs, for tables of
other kinds, where compiled loops are off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from cce import compiled
from cce.compiled import KINDS, parallel_for
from cce.kernels import is_eager
from cce.serving import loops
from cce.serving.row_groups import HashRows, OwnRows, PointerRows, RadixRows, RowGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cce.serving.frozen_tables import FrozenRows, FrozenTable

Array = np.ndarray[Any, Any]
LONGEST_RUN = 16
PARALLEL_VALUES = 1 << 18  # below so many, handing work to threads costs more than it saves
RANGES_PER_THREAD = 4
ID_TYPES = (torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def are_readable(ids: Any) -> bool:
    """Whether compiled loops can read these: a real tensor of ids on the CPU, outside any tracer."""
    return type(ids) is Tensor and ids.is_cpu and ids.dtype in ID_TYPES and is_eager()


class RowLookup:
    """Vectors `(B, Σ dim)` of ids `(B, F)`, one table for each column; `suits` says for which tables."""

    def __init__(self, tables: Sequence[FrozenRows]) -> None:
        self.dims = [table.embedding_dim for table in tables]
        self.num_embeddings = [table.num_embeddings for table in tables]
        self.total = sum(self.dims)
        self._state = [buffer for table in tables for buffer in table.buffers()]  # alive while addresses are used
        kinds = dict.fromkeys((table.rows.values.dtype, table.rows.values.shape[1]) for table in tables)
        self._groups = [_Group(tables, self.dims, *kind) for kind in kinds]

    @staticmethod
    def suits(tables: Sequence[FrozenTable]) -> bool:
        """Whether compiled loops can serve these tables."""
        return compiled.available and bool(tables) and all(_suits(table) for table in tables)

    def __call__(self, ids: Tensor, num_rows: int, id_row: int, id_column: int, vectors: Tensor) -> Tensor:
        """Fill `vectors`, `num_rows · Σ dim` values, for int64 ids on the CPU.

        id_row, id_column: elements from one row or column of ids to the next.
        """
        place = (ids.data_ptr(), 8 * id_row, 8 * id_column, vectors.data_ptr(), 4 * self.total)
        is_large = num_rows * self.total >= PARALLEL_VALUES and torch.get_num_threads() > 1
        for group in self._groups:
            wrong = _in_parallel(group, place, num_rows) if is_large else group(*place, 0, num_rows)
            if wrong >= 0:
                self._raise(ids, wrong)
        return vectors

    def _raise(self, ids: Tensor, place: int) -> None:
        column, limit = ids if ids.dim() < 2 or len(self.dims) == 1 else ids[:, place], self.num_embeddings[place]
        wrong = int(column[(column < 0) | (column >= limit)][0])
        raise IndexError(f"ids must lie in [0, {limit}), got {wrong}.")


class LookupHolder(nn.Module):
    """A module that looks up by compiled loops, and keeps their `RowLookup` while its tables stay where they are."""

    _lookup: RowLookup | Literal[False] | None = None  # False where compiled loops cannot serve; None: not known yet

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        self._lookup = None  # addresses change
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks up by itself, with other addresses."""
        return self.__dict__ | {"_lookup": None}


class _Group:
    """Tables that store rows of one type and width, as numbers for one loop."""

    def __init__(self, tables: Sequence[FrozenRows], dims: Sequence[int], dtype: torch.dtype, width: int) -> None:
        self.item = dtype.itemsize
        self.kind = KINDS.get(dtype)
        run = next(length for length in (LONGEST_RUN, 8, 4, 2, 1) if width % length == 0)
        self.run = (0,) * (width if self.kind is None else run)
        features: list[tuple[int, ...]] = []
        slots: list[tuple[int, ...]] = []
        for place, table in enumerate(tables):
            stored = table.rows
            if (stored.values.dtype, stored.values.shape[1]) != (dtype, width):
                continue
            scale = width // run if stored.scale is None else stored.scale.data_ptr()
            size = (table.num_embeddings, -1 if table.padding_idx is None else table.padding_idx)
            own = sorted(line for group in table.groups for line in _slots(group))  # type: ignore[arg-type]
            numbers = (len(slots), len(own), table.terms, place, dims[place])
            features.append((4 * sum(dims[:place]), stored.values.data_ptr(), scale, *size, *numbers))
            slots += [line for _, line in own]
        self.tables = (np.array(features, np.int64), np.array(slots, np.int64))

    def __call__(self, *where: int) -> int:
        """−1, or the place of a feature with an id out of range; see `loops` for where ids are and vectors go."""
        if self.kind is None:
            return loops.look_up_codes(*self.tables, *where, self.run)  # type: ignore[call-arg]
        return loops.look_up_floats(*self.tables, *where, self.item, self.kind, self.run)  # type: ignore[call-arg]


def _in_parallel(group: _Group, place: tuple[int, ...], num_rows: int) -> int:
    num_ranges = torch.get_num_threads() * RANGES_PER_THREAD
    found = [-1] * num_ranges

    def work(index: int) -> None:
        found[index] = group(*place, num_rows * index // num_ranges, num_rows * (index + 1) // num_ranges)

    parallel_for(work, num_ranges)
    return max(found)


def _suits(table: FrozenTable) -> bool:
    from cce.serving.frozen_tables import FrozenRows

    return (
        isinstance(table, FrozenRows)
        and not table.product
        and table.weights is None
        and all(isinstance(group, OwnRows | HashRows | PointerRows | RadixRows) for group in table.groups)
        and table.rows.values.dtype in (*FLOATS, torch.int8)
        and all(buffer.is_cpu and buffer.is_contiguous() for buffer in table.buffers())
    )


def _slots(group: RowGroup) -> list[tuple[int, tuple[int, ...]]]:
    """The slots of a group, each with its line in the table of slots (see `loops`)."""
    lines: list[tuple[int, ...]]
    if isinstance(group, PointerRows):
        stride = len(group.slots) * group.bits
        seeds = [0 if group.seeds is None else group.seeds[index].data_ptr() for index in range(len(group.slots))]
        lines = [
            (
                *(loops.LEARNED, first, group.tail_rows, group.words.data_ptr(), group.bits, stride),
                *(index * group.bits, group.num_learned, seeds[index], 0),
            )
            for index, first in enumerate(group.first_rows)
        ]
    elif isinstance(group, HashRows):
        lines = [
            (loops.HASHED, first, group.num_rows, 0, 0, 0, 0, 0, group.seeds[index].data_ptr(), 0)
            for index, first in enumerate(group.first_rows)
        ]
    elif isinstance(group, RadixRows):
        steps = [int(np.prod(group.radices[:index])) for index in range(len(group.radices))]
        numbers = zip(group.tables(), steps, strict=True)
        lines = [(loops.DIGIT, first, radix, 0, 0, 0, 0, 0, 0, step) for (first, radix), step in numbers]
    else:
        lines = [(loops.OWN, *[0] * 9)]
    return list(zip(group.slots, lines, strict=True))
