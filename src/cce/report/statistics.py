"""Means and what is known about them: least, greatest, and a confidence interval by Student's t. No scipy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# The 97.5 % point of Student's t for 1, 2, … degrees of freedom: 95 % lie between it and its negative.
STUDENT_T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
NORMAL = 1.959964  # the same of the normal distribution


@dataclass(frozen=True)
class Spread:
    """Numbers of several seeds in short. With one seed there is no interval: `low` and `high` are None."""

    count: int
    mean: float
    least: float
    greatest: float
    low: float | None = None  # the 95 % confidence interval of the mean
    high: float | None = None


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of the numbers among `values`; None if there is none."""
    numbers = [value for value in values if math.isfinite(value)]
    if not numbers:
        return None
    mean = math.fsum(numbers) / len(numbers)
    least, greatest = min(numbers), max(numbers)
    mean = min(max(mean, least), greatest)  # rounding may take it out
    if len(numbers) == 1:
        return Spread(1, mean, least, greatest)
    half = half_width(numbers, mean)
    return Spread(len(numbers), mean, least, greatest, mean - half, mean + half)


def spread_of_ratios(values: Iterable[float]) -> Spread | None:
    """The spread of positive ratios, of their logarithms: a geometric mean, and an interval that stays positive."""
    logs = spread(math.log(value) for value in values if value > 0 and math.isfinite(value))
    if logs is None:
        return None
    low, high = (None if bound is None else _exp(bound) for bound in (logs.low, logs.high))
    return Spread(logs.count, math.exp(logs.mean), math.exp(logs.least), math.exp(logs.greatest), low, high)


def half_width(numbers: list[float], mean: float) -> float:
    """Half of the 95 % confidence interval of the mean of two numbers or more."""
    freedom = len(numbers) - 1
    deviation = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / freedom)
    return student_t(freedom) * deviation / math.sqrt(len(numbers))


def student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t; beyond the table by the first terms of its series, within 0.2 %."""
    if freedom <= len(STUDENT_T):
        return STUDENT_T[freedom - 1]
    return NORMAL + (NORMAL**3 + NORMAL) / (4 * freedom)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
