"""Which rows an id reads, for inference: plain tensors and integer operations that any runtime has.

The same sources of rows as in `cce.indexing`, with their state in buffers, so that a program exported from them needs
nothing of this package. `spec` describes each for a file (`docs/format.md`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from cce.indexing import (
    CircularPlaces,
    DigitRows,
    HashedRows,
    LearnedRows,
    OwnRow,
    PointerStore,
    hash32,
    mixed_radix_digits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.indexing import RowSource

BYTE = 8


class RowGroup(nn.Module):
    """Rows of the slots `slots`, the slot `slots[i]` reading a table that begins at row `first_rows[i]`."""

    kind: ClassVar[str]

    def __init__(self, slots: Sequence[int], first_rows: Sequence[int]) -> None:
        super().__init__()
        self.slots, self.first_rows = tuple(slots), tuple(first_rows)

    @abstractmethod
    def forward(self, ids: Tensor) -> Tensor:
        """Rows `(n, len(slots))` of int64 ids `(n)`."""

    @abstractmethod
    def tables(self) -> list[tuple[int, int]]:
        """The first row and the number of rows that each slot can read."""

    def spec(self) -> dict[str, Any]:
        """What a reader must know beside the tensors."""
        return {"kind": self.kind, "slots": list(self.slots), "first_rows": list(self.first_rows)}

    def shift(self, rows: Tensor) -> Tensor:
        """Rows of each table, as rows of the codebook."""
        if not any(self.first_rows):
            return rows
        return rows + torch.tensor(self.first_rows, device=rows.device)


class OwnRows(RowGroup):
    """Every id has a row of its own."""

    kind = "own"

    def __init__(self, num_rows: int) -> None:
        super().__init__((0,), (0,))
        self.num_rows = num_rows

    def forward(self, ids: Tensor) -> Tensor:
        """The ids themselves."""
        return ids.unsqueeze(-1)

    def tables(self) -> list[tuple[int, int]]:
        """All rows."""
        return [(0, self.num_rows)]


class HashRows(RowGroup):
    """Rows named by hash functions."""

    kind = "hashed"
    seeds: Tensor

    def __init__(self, seeds: Tensor, num_rows: int, slots: Sequence[int], first_rows: Sequence[int]) -> None:
        super().__init__(slots, first_rows)
        self.num_rows = num_rows
        self.register_buffer("seeds", seeds.detach().cpu().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """Each function's row."""
        return self.shift((hash32(ids, self.seeds) * self.num_rows) >> 32)

    def tables(self) -> list[tuple[int, int]]:
        """As many rows for each function."""
        return [(first, self.num_rows) for first in self.first_rows]

    def spec(self) -> dict[str, Any]:
        """With the rows of a table."""
        return super().spec() | {"num_rows": self.num_rows}


class PointerRows(RowGroup):
    """Rows that packed pointers name; ids from `num_learned` on have none and are hashed to the first `tail_rows`."""

    kind = "learned"
    words: Tensor
    seeds: Tensor | None

    def __init__(
        self,
        pointers: PointerStore,
        seeds: Tensor | None,
        slots: Sequence[int],
        first_rows: Sequence[int],
        *,
        tail_rows: int | None = None,
    ) -> None:
        super().__init__(slots, first_rows)
        self.tail_rows = pointers.num_rows if tail_rows is None else tail_rows
        self.num_rows, self.bits, self.num_learned = pointers.num_rows, pointers.bits, pointers.num_ids
        self.register_buffer(
            "words", pointers.state()["pointers"]
        )  # not copied: a vocabulary may be large, and pointers stand still
        self.register_buffer("seeds", None if seeds is None else seeds.detach().cpu().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """Each column's row."""
        if self.seeds is None:
            return self.shift(self._read(ids))
        hashed = (hash32(ids, self.seeds) * self.tail_rows) >> 32
        if self.num_learned == 0:
            return self.shift(hashed)
        learned = self._read(ids.clamp(max=self.num_learned - 1))
        return self.shift(torch.where((ids < self.num_learned).unsqueeze(-1), learned, hashed))

    def _read(self, ids: Tensor) -> Tensor:
        """The pointers `(n, num_columns)` of ids `(n)`."""
        num_columns = len(self.slots)
        if self.bits >= BYTE:
            rows = self.words.view(-1, num_columns).index_select(0, ids).long()
            return rows & 0xFFFF if self.bits == 2 * BYTE else rows
        at = (ids.unsqueeze(-1) * num_columns + torch.arange(num_columns, device=ids.device)) * self.bits
        rows = self.words.index_select(0, (at >> 3).reshape(-1)).view(-1, num_columns).long()
        return (rows >> (at & BYTE - 1)) & (1 << self.bits) - 1

    def store(self) -> PointerStore:
        """The pointers, to read and to copy."""
        store = PointerStore(0, len(self.slots), self.num_rows, bits=self.bits)
        store.num_ids, store.words = self.num_learned, self.words
        return store

    def tables(self) -> list[tuple[int, int]]:
        """As many rows for each column."""
        return [(first, self.num_rows) for first in self.first_rows]

    def spec(self) -> dict[str, Any]:
        """With the width of a pointer."""
        numbers = {"num_rows": self.num_rows, "bits": self.bits}
        return super().spec() | numbers | {"num_learned": self.num_learned, "tail_rows": self.tail_rows}


class RadixRows(RowGroup):
    """Mixed-radix digits of the id, each in a table of its own."""

    kind = "digits"

    def __init__(self, radices: Sequence[int]) -> None:
        starts = [sum(radices[:index]) for index in range(len(radices))]
        super().__init__(range(len(radices)), starts)
        self.radices = tuple(radices)

    def forward(self, ids: Tensor) -> Tensor:
        """Each digit's row."""
        return self.shift(mixed_radix_digits(ids, self.radices))

    def tables(self) -> list[tuple[int, int]]:
        """As many rows as the digit has values."""
        return list(zip(self.first_rows, self.radices, strict=True))

    def spec(self) -> dict[str, Any]:
        """With the radices."""
        return super().spec() | {"radices": list(self.radices)}


class CircularRows(RowGroup):
    """Blocks of consecutive places of a circular array, at hashed places."""

    kind = "circular"
    seeds: Tensor

    def __init__(self, seeds: Tensor, size: int, dim: int, block_size: int) -> None:
        super().__init__(range(dim), [0] * dim)
        self.size, self.dim, self.block_size = size, dim, block_size
        self.register_buffer("seeds", seeds.detach().cpu().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """`(h(p // Z) + p mod Z) mod size` for the values `p = id · dim + i`."""
        positions = ids.unsqueeze(-1) * self.dim + torch.arange(self.dim, device=ids.device)
        block = torch.div(positions, self.block_size, rounding_mode="floor")
        starts = (hash32(block, self.seeds).squeeze(-1) * self.size) >> 32
        return (starts + positions % self.block_size) % self.size

    def tables(self) -> list[tuple[int, int]]:
        """The whole array."""
        return [(0, self.size)] * self.dim

    def spec(self) -> dict[str, Any]:
        """With the sizes of the array and of a block."""
        return super().spec() | {"size": self.size, "dim": self.dim, "block_size": self.block_size}


def freeze_source(source: RowSource) -> RowGroup:
    """The same rows for inference."""
    if isinstance(source, OwnRow):
        return OwnRows(source.num_rows)
    if isinstance(source, HashedRows):
        return HashRows(source.hash.seeds, source.hash.num_rows, source.slots, source.first_rows)
    if isinstance(source, LearnedRows):
        learned = source.assignments
        seeds = None if learned.num_learned == learned.num_embeddings else learned.hash.seeds
        tail_rows = 1 if learned.share_tail else None
        return PointerRows(learned.pointers, seeds, source.slots, source.first_rows, tail_rows=tail_rows)
    if isinstance(source, DigitRows):
        return RadixRows(source.split.rows_per_column)
    if isinstance(source, CircularPlaces):
        return CircularRows(source.hash.seeds, source.hash.num_rows, source.dim, source.block_size)
    raise TypeError(f"rows must come from a source of cce.indexing to be frozen, got {type(source).__name__}.")
