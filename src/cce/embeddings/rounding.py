"""Rounding to codes: the nearest whole number of steps, and the scale, the size of a step, that fits the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

HEADROOM = 8  # the largest code stands for so many times the root mean square of the values
FEW_HEADROOMS = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)  # with 4 bits: the one with the least error
FOUR = 4
SERIAL = 1 << 14  # values that torch adds up in one thread, so that sums have the same bits with any number of them
EXACT = 1e-5  # of a value: by no more it differs from a code times the scale that it was made with


@dataclass(frozen=True)
class Rounding:
    """Values to codes of so many bits, whole numbers in `[-largest, largest]`.

    few_headrooms: with 4 bits, how many times the root mean square of the values the largest code may stand for.
    """

    bits: int
    few_headrooms: tuple[float, ...] = FEW_HEADROOMS

    @property
    def largest(self) -> int:
        """The largest code; the smallest is its negative."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def headroom(self) -> float:
        """How many times the root mean square of the values the largest code stands for at the start."""
        return FEW_HEADROOMS[2] if self.bits == FOUR else HEADROOM

    def nearest(self, values: Tensor, scale: Tensor | float) -> Tensor:
        """The nearest codes, as floating-point numbers."""
        return (values / scale).round_().clamp(-self.largest, self.largest)

    def fitted_scales(self, parts: Iterable[Tensor]) -> Tensor:
        """The scale of each part of the values."""
        fitted = [(self.fitted_scale(part), part.device) for part in parts]
        return torch.tensor([scale for scale, _ in fitted], dtype=torch.float32, device=fitted[0][1])

    def fitted_scale(self, values: Tensor) -> float:
        """The scale with which the largest of the values is the largest code, unless it lies far out.

        Values that were rounded with such a scale have it again.
        """
        largest, root = float(values.abs().max()), math.sqrt(_sum_of_squares(_pieces(values)) / values.numel())
        wanted = sorted({min(largest, headroom * root) for headroom in self._headrooms()})
        if wanted[-1] < largest and self._is_exact(values, largest / self.largest):
            return largest / self.largest
        scales = [max(each / self.largest, torch.finfo(torch.float32).tiny) for each in wanted]  # even of zeros
        return scales[0] if len(scales) == 1 else min(scales, key=lambda scale: self._error(values, scale))

    def _headrooms(self) -> tuple[float, ...]:
        return self.few_headrooms if self.bits == FOUR else (HEADROOM,)

    def _error(self, values: Tensor, scale: float) -> float:
        """The squared error of rounding with this scale."""
        return _sum_of_squares(self.nearest(piece, scale).mul_(scale).sub_(piece) for piece in _pieces(values))

    def _is_exact(self, values: Tensor, scale: float) -> bool:
        """Whether the values are codes times this scale already."""
        return all(
            torch.allclose(self.nearest(piece, scale).mul_(scale), piece, rtol=EXACT, atol=0)
            for piece in _pieces(values)
        )


def _pieces(values: Tensor) -> Sequence[Tensor]:
    return torch.split(values.flatten(), SERIAL)


def _sum_of_squares(pieces: Iterable[Tensor]) -> float:
    return sum(float(piece.square().sum(dtype=torch.float64)) for piece in pieces)
