"""Widths of pointers, and how they lie in words: the one place that knows.

A pointer takes 1, 2, 4, 8, 16 or 32 bits. Pointers lie one after the other without gaps, number `p` from bit `p · bits`
on. A word holds one wide pointer, or a byte holds 2, 4 or 8 narrow ones, the first in its lowest bits: a pointer never
lies in two words, and is read by a shift and a mask. What is left over of the last word is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cce.checks import check_range

# bits of a pointer → the type of the words that hold it; torch can do little with unsigned words of 16 bits
WORDS: dict[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.uint8,
    4: torch.uint8,
    8: torch.uint8,
    16: torch.int16,
    32: torch.int32,
}
BYTE = 8


def pointer_bits(num_rows: int) -> int:
    """The narrowest width that can name every one of `num_rows` rows."""
    check_range("num_rows", num_rows, 1, 2**31)
    return next(bits for bits in WORDS if num_rows <= 1 << bits)


def pointer_nbytes(num_ids: int, num_columns: int, num_rows: int) -> int:
    """Bytes of the pointers of so many ids, each into `num_rows` rows of every column."""
    return packed_nbytes(num_ids * num_columns, pointer_bits(num_rows))


def packed_nbytes(num_pointers: int, bits: int) -> int:
    """Bytes of so many pointers of `bits` each."""
    return -(-num_pointers * bits // BYTE)


def unpack(words: Tensor, bits: int) -> Tensor:
    """All pointers in `words`, one each in uint8 or int32, with what is left over of the last word."""
    if bits < BYTE:
        return ((words.unsqueeze(-1) >> _shifts(bits)) & (1 << bits) - 1).view(-1)
    return words.int() & 0xFFFF if bits == 16 else words


def pack(pointers: Tensor, bits: int) -> Tensor:
    """Words of pointers `(n)` that fill them."""
    if bits < BYTE:
        return (pointers.to(torch.uint8).view(-1, BYTE // bits) << _shifts(bits)).sum(-1, dtype=torch.uint8)
    return pointers.to(WORDS[bits])


def gather(words: Tensor, ids: Tensor, num_columns: int, bits: int) -> Tensor:
    """The pointers `(n, num_columns)` of ids `(n)`, int64, where every id has `num_columns` of them."""
    if bits >= BYTE:
        rows = words.view(-1, num_columns).index_select(0, ids).long()
        return rows & 0xFFFF if bits == 16 else rows
    at = (ids.long().unsqueeze(-1) * num_columns + torch.arange(num_columns, device=words.device)) * bits
    rows = words.index_select(0, (at >> 3).view(-1)).view(at.shape).long()
    return torch.bitwise_right_shift(rows, at & BYTE - 1) & (1 << bits) - 1  # ONNX has no `>>` by a tensor


def _shifts(bits: int) -> Tensor:
    return torch.arange(0, BYTE, bits, dtype=torch.uint8, device="cpu")
