"""Options of the constructors of tables: those that all have, and rules for those of a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch

from cce.checks import check_choice, check_number, check_range, shown
from cce.embeddings.initialization import StartScale

Options = dict[str, Any]  # arguments of a constructor, by name
Check = Callable[[str, Any], None]  # of a name and a value
MAX_ROWS = 2**31


class CommonOptions(TypedDict, total=False):
    """Options that every table has beside those of its method: see `Embedding`."""

    padding_idx: int | None
    sparse: bool
    start_scale: StartScale | None
    generator: torch.Generator | None
    device: torch.device | str | None
    dtype: torch.dtype | None


def rules(**checks: Check) -> Mapping[str, Check]:
    """The rules of a class, by the names of its options."""
    return checks


def whole(low: int, high: int = MAX_ROWS) -> Check:
    """An int in `[low, high)`."""
    return lambda name, value: check_range(name, value, low, high)


def choice(*words: str) -> Check:
    """One of these words."""
    return lambda name, value: check_choice(name, value, words)


def within(low: float, high: float) -> Check:
    """A number in `[low, high]`."""

    def check(name: str, value: Any) -> None:
        check_number(name, value, -math.inf)
        if not low <= value <= high:
            raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value}.")

    return check


def wholes(length: int | None = None) -> Check:
    """A list of ints of at least 1, of this length."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != (length or len(value)):
            raise TypeError(f"{name} must be a list of {f'{length} ' if length else ''}ints, got {shown(value)}.")
        for each in value:
            check_range(name, each, 1, 2**63)

    return check


def optional(check: Check) -> Check:
    """None, or what `check` accepts."""
    return lambda name, value: None if value is None else check(name, value)
