"""Quotient–remainder and its generalisation, mixed-radix digits, in exact integer arithmetic.

Shi et al., "Compositional embeddings using complementary partitions" (KDD 2020): `x mod p` and `x // p` together name
`x` uniquely. A division in float32 would be wrong for a third of the ids above 3·10⁷.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn


def mixed_radix_digits(ids: Tensor, radices: Sequence[int]) -> Tensor:
    """The digits of ids `(*s)`, lowest first: `(*s, len(radices))`; `digit[i]` lies in `[0, radices[i])`."""
    digits = []
    for radix in radices:
        digits.append(ids % radix)
        ids = torch.div(ids, radix, rounding_mode="floor")
    return torch.stack(digits, dim=-1)


def balanced_radices(num_ids: int, num_digits: int) -> tuple[int, ...]:
    """Nearly equal radices, largest first, whose product is at least `num_ids`."""
    radices = []
    for remaining in range(num_digits, 0, -1):
        radix = _ceil_root(num_ids, remaining)
        radices.append(radix)
        num_ids = -(-num_ids // radix)
    return tuple(radices)


def radices_within(num_ids: int, num_digits: int, num_rows: int) -> tuple[int, ...] | None:
    """Radices that name `num_ids` ids with a sum as close under `num_rows` as can be; None if no radices fit.

    The first digit (the remainder) gets what the others do not need, as in the paper, where `p` sets the size.
    """
    if num_digits == 1:
        return (num_ids,) if num_ids <= num_rows else None
    low, high = balanced_radices(num_ids, num_digits)[0], min(num_rows, num_ids)
    if low > high or sum(_with_first(num_ids, num_digits, low)) > num_rows:
        return None
    while low < high:  # the sum grows with the first radix once that is above the balanced one
        middle = (low + high + 1) // 2
        if sum(_with_first(num_ids, num_digits, middle)) <= num_rows:
            low = middle
        else:
            high = middle - 1
    return _with_first(num_ids, num_digits, low)


class QuotientRemainder(nn.Module):
    """Ids `(*s)` to their mixed-radix digits `(*s, num_columns)`; no two ids share all digits."""

    def __init__(self, radices: Sequence[int], num_embeddings: int) -> None:
        super().__init__()
        if math.prod(radices) < num_embeddings:
            raise ValueError(f"radices must multiply to at least num_embeddings={num_embeddings}, got {radices}.")
        self.rows_per_column = tuple(radices)

    def forward(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_columns)` of ids `(*s)`."""
        return mixed_radix_digits(ids, self.rows_per_column)

    def stacked(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_columns)` of one codebook that holds the columns' tables one below the other."""
        starts = torch.tensor([0, *accumulate(self.rows_per_column[:-1])], device=ids.device)
        return self(ids) + starts  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"radices={self.rows_per_column}"


def _with_first(num_ids: int, num_digits: int, first: int) -> tuple[int, ...]:
    return (first, *balanced_radices(-(-num_ids // first), num_digits - 1))


def _ceil_root(value: int, degree: int) -> int:
    """The smallest integer whose `degree`-th power is at least `value`."""
    root: int = max(1, round(value ** (1 / degree)))  # a float guess, then exact steps
    while root**degree < value:
        root += 1
    while root > 1 and (root - 1) ** degree >= value:
        root -= 1
    return root
