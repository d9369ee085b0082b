"""`PointerStore`: for every id and column, the row of the codebook that the id points to.

Whoever reads or writes rows need not know how they are stored: packed, in memory that several processes may share.
They lie on the device of their table, or on the CPU, if they are asked to stay there (`keep_on_cpu`).

A pointer takes 1 to 16 bits, or 32. Pointers follow each other without gaps in a stream of bytes: number `p` takes the
bits from `p · bits` on, lowest bits first. Three bytes of zeros end the stream, so that the four bytes from where any
pointer begins can be read at once: a read, a shift and a mask give a pointer of any width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cce.checks import check_range
from cce.indexing.ids import blocks
from cce.indexing.multiply_shift import MAX_ROWS

WIDTHS: tuple[int, ...] = (*range(1, 17), 32)  # bits of a pointer
BYTE, GROUP = 8, 8  # bits of a byte; pointers that fill whole bytes, as many as they have bits
PADDING = 3  # bytes behind the last pointer
BLOCK, CHUNK = 1 << 18, 1 << 19  # ids read at a time, groups of pointers unpacked at a time


class PointerStore:
    """Pointers of `num_ids` ids in `num_columns` columns, each to one of `num_rows` rows; all zero at the start.

    bits: the width of a pointer; by default the narrowest that can name the rows.
    is_meta: hold nothing yet, as tensors on the meta device do: `set_meta(False)` allocates the pointers.
    """

    def __init__(
        self, num_ids: int, num_columns: int, num_rows: int, *, bits: int | None = None, is_meta: bool = False
    ) -> None:
        check_range("num_ids", num_ids, 0, 1 << 62)
        check_range("num_columns", num_columns, 1, MAX_ROWS)
        check_range("num_rows", num_rows, 1, MAX_ROWS)
        self.num_ids, self.num_columns, self.num_rows = num_ids, num_columns, num_rows
        self.bits = pointer_bits(num_rows) if bits is None else bits
        if self.bits not in WIDTHS or self.bits < pointer_bits(num_rows):
            raise ValueError(f"bits must be one of {WIDTHS} that can name {num_rows} rows, got {bits!r}.")
        self.words = self._empty_words()
        self.set_meta(is_meta)

    @property
    def nbytes(self) -> int:
        return self.words.nbytes

    @property
    def is_meta(self) -> bool:
        return self.words.is_meta

    def set_meta(self, is_meta: bool) -> None:  # noqa: FBT001
        """Drop the pointers, or allocate them if there are none."""
        if is_meta:
            self.words = self._empty_words()
        elif self.is_meta:
            self.words = torch.zeros_like(self.words, device="cpu")

    @property
    def is_shared(self) -> bool:
        """Whether the pointers lie in memory that other processes can see."""
        return bool(self.words.numel() and self.words.is_shared())  # type: ignore[no-untyped-call]

    def read(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_columns)`, int64 and on the device of the ids `(*s)`."""
        rows = gather(self.words, ids.reshape(-1).to(self.words.device), self.num_columns, self.bits)
        return rows.view(*ids.shape, self.num_columns).to(ids.device)

    def write(self, first: int, rows: Tensor) -> None:
        """Point ids `first`, `first + 1`, … to `rows` `(n, num_columns)`."""
        rows = rows.to(self.words.device)
        if rows.shape != (len(rows), self.num_columns) or not 0 <= first <= self.num_ids - len(rows):
            raise ValueError(
                f"rows must be ({self.num_ids - first} or less, {self.num_columns}) from id {first} on, "
                f"got {tuple(rows.shape)}."
            )
        if not _all_below(rows, self.num_rows):
            low, high = (int(bound) for bound in rows.aminmax())
            raise ValueError(f"rows must lie in [0, {self.num_rows}), got {low} to {high}.")
        self._put(first * self.num_columns, rows.reshape(-1))

    def blocks(self) -> Iterator[Tensor]:
        """The rows of all ids, `(n, num_columns)` int64, block by block."""
        return (self.read(ids) for ids in blocks(self.num_ids, BLOCK))

    def to_tensor(self) -> Tensor:
        """A copy `(num_ids, num_columns)` with one element a pointer: uint8 up to 8 bits, int32 beyond."""
        pointers = [unpack(words, self.bits) for words in torch.split(self.words, CHUNK * self.bits)]
        return torch.cat(pointers)[: self.num_ids * self.num_columns].view(self.num_ids, self.num_columns)

    def share_memory_(self) -> None:
        """Move the pointers to memory that processes share."""
        if self.words.numel():
            self.words.share_memory_()  # type: ignore[no-untyped-call]

    def replace(self, pointers: PointerStore) -> PointerStore:
        """The store to use from now on, with these pointers.

        Shared pointers are overwritten where they are, so that all processes see the new ones, unless sizes change.
        """
        if self.is_shared and self._sizes == pointers._sizes:
            self.words.copy_(pointers.words)
            return self
        if self.is_shared:
            pointers.share_memory_()
        return pointers

    def state(self) -> dict[str, Tensor]:
        """What `load` reads: the bytes, and an empty tensor whose shape says how many ids, columns and bits they hold.

        (A state dict has only tensors, and this one takes no space.)
        """
        shape = torch.empty(self.num_ids, self.num_columns, self.bits, 0, dtype=torch.uint8, device=self.words.device)
        return {"pointers": self.words, "pointer_shape": shape}

    def load(self, words: Tensor, shape: Tensor | None) -> None:
        """Take over the pointers of a state."""
        num_ids, num_columns, bits = _shape_of(words, shape)
        if (num_ids, num_columns, bits) != (self.num_ids, self.num_columns, self.bits):
            ours = f"({self.num_ids}, {self.num_columns}) of {self.bits} bits"
            raise ValueError(f"the checkpoint has ({num_ids}, {num_columns}) of {bits} bits, the module {ours}.")
        self.check_words(words)
        if not self.is_meta:  # as a parameter on the meta device takes nothing over
            self.words.copy_(words)

    def check_words(self, words: Tensor) -> None:
        """Reject pointers of which one names no row: a lookup would follow it, and its gradient write, beyond them."""
        parts = () if words.is_meta else torch.split(words.cpu(), CHUNK * self.bits)
        if not all(_all_below(unpack(some, self.bits), self.num_rows) for some in parts):
            raise ValueError(f"they must lie in [0, {self.num_rows}).")

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self.num_ids, self.num_columns, self.num_rows, self.bits

    def _put(self, start: int, pointers: Tensor) -> None:
        """Write pointers from number `start` on; the first and the last may share a byte with others."""
        first, last = start // GROUP, -(-(start + len(pointers)) // GROUP)
        part = self.words[first * self.bits : last * self.bits]  # the last group may lack bytes that it does not need
        if start % GROUP or start + len(pointers) != min(last * GROUP, self.num_ids * self.num_columns):
            around, start = unpack(part, self.bits), start - first * GROUP
            around[start : start + len(pointers)] = pointers
            pointers = around
        part.copy_(pack(pointers, self.bits)[: len(part)])

    def _empty_words(self) -> Tensor:
        nbytes = packed_nbytes(self.num_ids * self.num_columns, self.bits)
        return torch.empty(nbytes, dtype=torch.uint8, device="meta")


def _shape_of(words: Tensor, shape: Tensor | None) -> tuple[int, int, int]:
    """The numbers of ids, columns and bits of a state."""
    if shape is None:
        raise ValueError(f"they must have a pointer_shape, got {tuple(words.shape)} without one.")
    num_ids, num_columns, bits, *rest = (*shape.shape, 0, 0, 0)
    expected = (packed_nbytes(num_ids * num_columns, bits),)
    if len(rest) != 4 or bits not in WIDTHS or (words.dtype, words.shape) != (torch.uint8, expected):
        found = f"{tuple(words.shape)} of {words.dtype}"
        raise ValueError(f"they must fit their pointer_shape {tuple(shape.shape)}, got {found}.")
    return num_ids, num_columns, bits


def _all_below(pointers: Tensor, num_rows: int) -> bool:
    if not pointers.numel():
        return True
    low, high = (int(bound) for bound in pointers.aminmax())  # a comparison in uint8 would take 256 for 0
    return low >= 0 and high < num_rows


# -- how pointers lie in bytes: the one place that knows ---------------------------------------------------------------


def pointer_bits(num_rows: int) -> int:
    """The narrowest width that can name every one of `num_rows` rows."""
    check_range("num_rows", num_rows, 1, 2**31)
    return next(bits for bits in WIDTHS if num_rows <= 1 << bits)


def pointer_nbytes(num_ids: int, num_columns: int, num_rows: int) -> int:
    """Bytes of the pointers of `num_ids` ids, each into `num_rows` rows of every column."""
    return packed_nbytes(num_ids * num_columns, pointer_bits(num_rows))


def packed_nbytes(num_pointers: int, bits: int) -> int:
    """Bytes of a stream of pointers of `bits` each."""
    return -(-num_pointers * bits // BYTE) + PADDING if num_pointers else 0


def unpack(stream: Tensor, bits: int) -> Tensor:
    """All pointers in a stream `(n)` that begins with one, in uint8 or int32, and what lies behind the last one."""
    if bits == BYTE:
        return stream
    filled = torch.nn.functional.pad(stream, (0, -len(stream) % bits)).view(-1, bits)
    dtype = torch.uint8 if bits < BYTE else torch.int32
    pointers = torch.empty(len(filled), GROUP, dtype=dtype, device=stream.device)
    for place in range(GROUP):
        first, shift = divmod(place * bits, BYTE)
        value = filled[:, first].int()
        for more in range(1, _num_bytes(shift, bits)):
            value |= filled[:, first + more].int() << BYTE * more
        pointers[:, place] = (value >> shift) & _mask(bits)
    return pointers.view(-1)


def pack(pointers: Tensor, bits: int) -> Tensor:
    """The stream of pointers `(n)`, filled up with zeros to a multiple of eight, without padding."""
    values = torch.nn.functional.pad(pointers.int(), (0, -len(pointers) % GROUP)).view(-1, GROUP)
    if bits == BYTE:
        return values.view(-1).to(torch.uint8)
    stream = torch.zeros(len(values), bits, dtype=torch.uint8, device=pointers.device)
    for place in range(GROUP):
        first, shift = divmod(place * bits, BYTE)
        value = values[:, place] << shift
        for index in range(_num_bytes(shift, bits)):
            stream[:, first + index] |= ((value >> BYTE * index) & 0xFF).to(torch.uint8)
    return stream.view(-1)


def gather(stream: Tensor, ids: Tensor, num_columns: int, bits: int) -> Tensor:
    """The pointers `(n, num_columns)` of ids `(n)`, int64, where every id has `num_columns` of them."""
    at = (ids.long().unsqueeze(-1) * num_columns + torch.arange(num_columns, device=stream.device)) * bits
    first = (at >> 3).view(-1)
    value = stream.index_select(0, first).long()
    for more in range(1, _num_bytes(BYTE - 1 if bits % BYTE else 0, bits)):
        value = value + stream.index_select(0, first + more).long() * 256**more
    if bits % BYTE:
        value = torch.bitwise_right_shift(value, at.view(-1) & BYTE - 1) & _mask(bits)  # ONNX has no `>>` by a tensor
    return value.view(at.shape)


def _num_bytes(shift: int, bits: int) -> int:
    """Bytes in which a pointer lies that begins at bit `shift` of the first."""
    return -(-(shift + bits) // BYTE)


def _mask(bits: int) -> int:
    return (1 << min(bits, 31)) - 1
