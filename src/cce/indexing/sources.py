"""Where the rows of an id come from, said once: as plain torch, and as numbers that a compiled lookup follows.

An id has some *slots*, one for every row that it adds up. A source fills some of the slots with rows of the codebook:
the id's own row, hashed rows, learned rows, digits, or places in a circular array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cce.indexing.assignments import Assignments
    from cce.indexing.multiply_shift import MultiplyShift
    from cce.indexing.pointer_store import PointerStore
    from cce.indexing.quotient_remainder import QuotientRemainder


class SlotKind(IntEnum):
    """How a compiled lookup fills one slot."""

    OWN = 0  # with the id itself
    HASHED = 1  # with a hash of it
    LEARNED = 2  # with a stored pointer
    DIGIT = 3  # with `(id // step) mod num_rows`
    CIRCULAR = 4  # and those after it: consecutive rows of a circular array, block by block at hashed rows
    FILLED = 5  # by an earlier slot


@dataclass(frozen=True)
class Slot:
    """One slot of an id in numbers and tensors, as compiled loops read them.

    A field has the name of its column in the loops' table (`kernels.cpu.rows.SLOT`), which gets a tensor's address.
    """

    kind: SlotKind
    first_row: int  # added to the row
    num_rows: int
    seeds: Tensor | None = None  # (3), of the hash function
    pointers: Tensor | None = None  # packed
    num_ids: int = 0  # that have one
    bits: int = 0  # of a pointer
    first_bit: int = 0  # of the pointer of id 0 …
    stride: int = 0  # … and bits from there to that of the next id
    step: int = 0
    dim: int = 0  # circular slots in all
    block_size: int = 0


class RowSource(ABC):
    """Rows for the slots `slots` of an id."""

    slots: Sequence[int]

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor:
        """Rows `(n, len(slots))` of ids `(n)`, in plain torch."""

    @abstractmethod
    def describe(self) -> list[Slot]:
        """The same in numbers, one entry for each of `slots`."""


@dataclass(frozen=True)
class OwnRow(RowSource):
    """Every id has a row of its own."""

    num_rows: int
    slots: Sequence[int] = (0,)

    def rows(self, ids: Tensor) -> Tensor:
        return ids.unsqueeze(-1)

    def describe(self) -> list[Slot]:
        return [Slot(SlotKind.OWN, 0, self.num_rows)]


@dataclass(frozen=True)
class HashedRows(RowSource):
    """Rows named by hash functions, `first_rows[i]` being the first row of the table that function `i` names."""

    hash: MultiplyShift
    slots: Sequence[int]
    first_rows: Sequence[int]

    def rows(self, ids: Tensor) -> Tensor:
        return _shift(self.hash(ids), self.first_rows)

    def describe(self) -> list[Slot]:
        pairs = zip(self.first_rows, self.hash.seeds.unbind(), strict=True)
        return [Slot(SlotKind.HASHED, first, self.hash.num_rows, own) for first, own in pairs]


@dataclass(frozen=True)
class LearnedRows(RowSource):
    """Rows that stored pointers name, `first_rows[i]` being the first row of column `i`'s table."""

    assignments: Assignments
    slots: Sequence[int]
    first_rows: Sequence[int]

    def rows(self, ids: Tensor) -> Tensor:
        return _shift(self.assignments(ids), self.first_rows)

    def describe(self) -> list[Slot]:
        return slots_of(self.assignments.pointers, self.first_rows)


@dataclass(frozen=True)
class DigitRows(RowSource):
    """Mixed-radix digits of the id, each in a table of its own, one below the other."""

    split: QuotientRemainder

    @property
    def slots(self) -> Sequence[int]:  # type: ignore[override]
        return range(len(self.split.rows_per_column))

    def rows(self, ids: Tensor) -> Tensor:
        return self.split.stacked(ids)

    def describe(self) -> list[Slot]:
        radices = self.split.rows_per_column
        first_rows = accumulate((0, *radices[:-1]))
        steps = accumulate((1, *radices[:-1]), lambda step, radix: step * radix)
        digits = zip(first_rows, radices, steps, strict=True)
        return [Slot(SlotKind.DIGIT, first, radix, step=step) for first, radix, step in digits]


@dataclass(frozen=True)
class CircularPlaces(RowSource):
    """One place of a circular array for each number of the vector, in blocks of `block_size` at hashed places."""

    hash: MultiplyShift
    dim: int
    block_size: int

    @property
    def slots(self) -> Sequence[int]:  # type: ignore[override]
        return range(self.dim)

    def rows(self, ids: Tensor) -> Tensor:
        """`(h(p // Z) + p mod Z) mod size` for the numbers `p = id · dim + i`."""
        positions = ids.unsqueeze(-1) * self.dim + torch.arange(self.dim, device=ids.device)
        block = torch.div(positions, self.block_size, rounding_mode="floor")
        starts: Tensor = self.hash(block).squeeze(-1)
        return (starts + positions % self.block_size) % self.hash.num_rows

    def describe(self) -> list[Slot]:
        """The first slot says all."""
        num_rows, seeds = self.hash.num_rows, self.hash.seeds[0]
        first = Slot(SlotKind.CIRCULAR, 0, num_rows, seeds, dim=self.dim, block_size=self.block_size)
        return [first, *[Slot(SlotKind.FILLED, 0, num_rows)] * (self.dim - 1)]


def slots_of(pointers: PointerStore, first_rows: Sequence[int]) -> list[Slot]:
    """A slot for each column of stored pointers."""
    bits, num_columns = pointers.bits, pointers.num_columns
    return [
        Slot(
            SlotKind.LEARNED,
            first,
            pointers.num_rows,
            pointers=pointers.words,
            num_ids=pointers.num_ids,
            bits=bits,
            first_bit=column * bits,
            stride=num_columns * bits,
        )
        for column, first in enumerate(first_rows)
    ]


def rows_of(sources: Sequence[RowSource], ids: Tensor) -> Tensor:
    """Rows `(n, num_slots)` of ids `(n)`, every source's in its slots."""
    if len(sources) == 1:
        return sources[0].rows(ids)
    columns: dict[int, Tensor] = {}
    for source in sources:
        columns |= zip(source.slots, source.rows(ids).unbind(-1), strict=True)
    return torch.stack([columns[slot] for slot in sorted(columns)], dim=-1)


def describe(sources: Sequence[RowSource]) -> list[Slot]:
    """All slots in order."""
    entries = {slot: entry for source in sources for slot, entry in zip(source.slots, source.describe(), strict=True)}
    return [entries[slot] for slot in range(len(entries))]


def _shift(rows: Tensor, first_rows: Sequence[int]) -> Tensor:
    if not any(first_rows):
        return rows
    return rows + torch.tensor(list(first_rows), device=rows.device)
