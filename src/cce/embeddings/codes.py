"""Rows of small integers, and the scale that makes values of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cce.indexing import IndexModule

if TYPE_CHECKING:
    from torch import Tensor

CODES = {8: torch.int8, 16: torch.int16}
HEADROOM = 8  # the largest code stands for so many times the root mean square of the values


class Codes(IndexModule):
    """Integers `(num_rows, width)` in `[-largest, largest]`: trained, but by no optimizer of torch's."""

    index_state = ("values",)
    device_tensors = ("values",)

    def __init__(self, num_rows: int, width: int, *, bits: int) -> None:
        super().__init__()
        self.values = torch.zeros(num_rows, width, dtype=CODES[bits], device="cpu")

    @property
    def largest(self) -> int:
        """The largest code; the smallest is its negative."""
        return torch.iinfo(self.values.dtype).max

    def fitted_scale(self, values: Tensor) -> float:
        """The scale with which the largest of the values is the largest code, unless it lies far out."""
        largest = float(values.abs().max())
        wanted = min(largest, HEADROOM * float(values.square().mean().sqrt()))
        return max(wanted / self.largest, torch.finfo(torch.float32).tiny)  # even where all values are zero


def check_bits(name: str, value: Any) -> None:
    """Reject widths that there are no codes of."""
    if value not in CODES:
        raise ValueError(f"{name} must be 8 or 16, got {value!r}.")
