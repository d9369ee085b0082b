"""Rows of small integers, and the scale that makes values of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from cce.indexing import IndexModule

if TYPE_CHECKING:
    from torch import Tensor

CODES = {4: torch.uint8, 8: torch.int8, 16: torch.int16}
HEADROOM = 8  # the largest code stands for so many times the root mean square of the values
FEW_HEADROOMS = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)  # with 4 bits: the one with the least error
FOUR = 4
OFFSET = 8  # of 4-bit codes, which are stored as 0 to 15, two in a byte


class Codes(IndexModule):
    """Integers `(num_rows, width)` in `[-largest, largest]`: trained, but by no optimizer of torch's.

    `values` has an integer for each code; of 4 bits, two codes share a byte.
    """

    index_state = ("values",)
    device_tensors = ("values",)

    def __init__(self, num_rows: int, width: int, *, bits: int) -> None:
        super().__init__()
        self.bits, self.width = bits, width
        stored = CODES[bits]
        self.values = torch.zeros(num_rows, row_nbytes(width, bits) // stored.itemsize, dtype=stored, device="cpu")

    @property
    def numel(self) -> int:
        """How many codes there are."""
        return len(self.values) * self.width

    @property
    def largest(self) -> int:
        """The largest code; the smallest is its negative."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def headroom(self) -> float:
        """How many times the root mean square of the values the largest code stands for at the start."""
        return FEW_HEADROOMS[2] if self.bits == FOUR else HEADROOM

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

    def fitted_scale(self, values: Tensor) -> float:
        """The scale with which the largest of the values is the largest code, unless it lies far out."""
        largest, root = float(values.abs().max()), float(values.square().mean().sqrt())
        wanted = sorted({min(largest, headroom * root) for headroom in self._headrooms()})
        scales = [max(each / self.largest, torch.finfo(torch.float32).tiny) for each in wanted]  # even of zeros
        return scales[0] if len(scales) == 1 else min(scales, key=lambda scale: self._error(values, scale))

    def _headrooms(self) -> tuple[float, ...]:
        return FEW_HEADROOMS if self.bits == FOUR else (HEADROOM,)

    def _error(self, values: Tensor, scale: float) -> float:
        """The squared error of rounding with this scale."""
        rounded = (values / scale).round_().clamp_(-self.largest, self.largest)
        return float((rounded * scale - values).square().sum())


def row_nbytes(width: int, bits: int) -> int:
    """Bytes of a row of codes."""
    return -(-width * bits // 8)


def check_bits(name: str, value: Any) -> None:
    """Reject widths that there are no codes of."""
    if value not in CODES:
        raise ValueError(f"{name} must be 4, 8 or 16, got {value!r}.")
