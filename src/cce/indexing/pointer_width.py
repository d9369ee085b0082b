"""Widths of pointers, and how they lie in bytes: the one place that knows.

A pointer takes 1 to 16 bits, or 32. Pointers follow each other without gaps in a stream of bytes: number `p` takes the
bits from `p · bits` on, lowest bits first. Three bytes of zeros end the stream, so that the four bytes from where any
pointer begins can be read at once: a read, a shift and a mask give a pointer of any width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cce.checks import check_range

WIDTHS: tuple[int, ...] = (*range(1, 17), 32)  # bits of a pointer
BYTE, GROUP = 8, 8  # bits of a byte; pointers that fill whole bytes, as many as they have bits
PADDING = 3  # bytes behind the last pointer


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
