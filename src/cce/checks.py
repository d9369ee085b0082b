"""Checks at the door: every error names the argument, the rule and the value."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Refuse an integer outside `[low, high)`."""
    try:
        whole = operator.index(value)  # numpy's integers are welcome
    except TypeError:
        whole = None
    if whole is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}.")
    if not low <= value < high:
        raise ValueError(f"{name} must lie in [{low}, {_power(high)}), got {value}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a word that is not among `choices`."""
    allowed = tuple(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")


def check_divides(name: str, parts: int, whole_name: str, whole: int) -> None:
    """Refuse to cut `whole` into `parts` unequal pieces."""
    check_range(name, parts, 1, 2**31)
    if whole % parts:
        raise ValueError(f"{whole_name} must be a multiple of {name}, got {whole_name}={whole} and {name}={parts}.")


def _power(value: int) -> str:
    exponent = round(math.log2(value)) if value > 0 else 0
    return f"2**{exponent}" if exponent >= 16 and value == 2**exponent else str(value)
