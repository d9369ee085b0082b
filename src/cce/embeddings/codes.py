"""Rows of small integers, which a scale makes values of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cce.embeddings.rounding import FOUR, Rounding
from cce.indexing import IndexModule

CODES = {4: torch.uint8, 8: torch.int8, 16: torch.int16}
OFFSET = 8  # of 4-bit codes, which are stored as 0 to 15, two in a byte


class Codes(IndexModule):
    """Integers `(num_rows, width)` in `[-largest, largest]`: trained, but by no optimizer of torch's.

    `values` has an integer for each code; of 4 bits, two codes share a byte.
    """

    index_state = ("values",)
    device_tensors = ("values",)

    def __init__(self, num_rows: int, width: int, *, bits: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.bits, self.width = bits, width
        self.rounding = Rounding(bits)
        stored = CODES[bits]
        self.values = torch.zeros(num_rows, row_nbytes(width, bits) // stored.itemsize, dtype=stored, device=device)

    @property
    def numel(self) -> int:
        """How many codes there are."""
        return len(self.values) * self.width

    @property
    def largest(self) -> int:
        """The largest code; the smallest is its negative."""
        return self.rounding.largest

    def read(self, rows: Tensor) -> Tensor:
        """The codes `(n, width)` of rows `(n)`."""
        found = self.values.index_select(0, rows)
        if self.bits != FOUR:
            return found
        pairs = torch.stack([found & 15, found >> 4], dim=-1).flatten(1)
        return pairs[:, : self.width].to(torch.int8) - OFFSET

    def write(self, first: int, codes: Tensor) -> None:
        """Set the rows from `first` on to whole numbers `(n, width)`."""
        if self.bits == FOUR:
            even = functional.pad((codes + OFFSET).to(torch.uint8), (0, self.width % 2))
            codes = even[:, ::2] | (even[:, 1::2] << 4)
        self.values[first : first + len(codes)] = codes.to(self.values.dtype)


def row_nbytes(width: int, bits: int) -> int:
    """Bytes of a row of codes."""
    return -(-width * bits // 8)


def check_bits(name: str, value: Any) -> None:
    """Reject widths that there are no codes of."""
    if value not in CODES:
        raise ValueError(f"{name} must be 4, 8 or 16, got {value!r}.")
