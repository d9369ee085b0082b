"""What the columns of a raw file mean, and how its rows are taken: plain values that every worker is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cce.checks import check_choice, check_range

SAMPLES = ("all", "rows", "negatives")


@dataclass(frozen=True)
class Columns:
    """The columns of a raw file by name."""

    label: str | None  # None where new rows have none
    categorical: tuple[str, ...]
    dense: tuple[str, ...] = ()
    multi_hot: tuple[str, ...] = ()  # they come after the categorical ones
    weight: str | None = None
    timestamp: str | None = None  # read only where rows are split by time
    user: str | None = None  # whose last rows are held out; read only where they are
    group: str | None = None  # whose values say which split a row is in; set by the split

    def __post_init__(self) -> None:
        if not self.features:
            raise ValueError("categorical must name at least one column, got none.")
        inputs = (*self.features, *self.dense)
        twice = [name for name in inputs if inputs.count(name) > 1]
        if twice:
            raise ValueError(f"categorical, multi_hot and dense must name a column once, got {twice[0]!r} twice.")
        if self.label is not None and self.label in (*inputs, self.weight):
            raise ValueError(f"label must be no feature, dense column or weight as well, got {self.label!r}.")

    def for_split(self, way: str, column: str | None) -> Columns:
        """The columns that are read where rows are split this way."""
        needed = {"temporal": ("timestamp",), "last-two": ("timestamp", "user")}.get(way, ())
        for role in needed:
            if getattr(self, role) is None:
                raise ValueError(f"{role} must name a column to split {way!r}, got none.")
        return replace(
            self,
            timestamp=self.timestamp if "timestamp" in needed else None,
            user=self.user if "user" in needed else None,
            group=column if way == "column" else None,
        )

    @property
    def inputs(self) -> Columns:
        """The columns that a model reads: no label, no weight, nothing that rows are split by."""
        return replace(self, label=None, weight=None, timestamp=None, user=None, group=None)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features, in the order of a batch."""
        return (*self.categorical, *self.multi_hot)

    @property
    def numbers(self) -> dict[str, str]:
        """Numeric columns other than the dense ones, by role."""
        roles = {"label": self.label, "weight": self.weight, "timestamp": self.timestamp, "user": self.user}
        return {role: name for role, name in roles.items() if name is not None}

    @property
    def words(self) -> tuple[str, ...]:
        """Columns whose values are left unchanged."""
        return (*self.categorical, *((self.group,) if self.group and self.group not in self.categorical else ()))

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        return tuple(dict.fromkeys((*self.numbers.values(), *self.dense, *self.words, *self.multi_hot)))


@dataclass(frozen=True)
class Reading:
    """How raw rows become rows."""

    names: tuple[str, ...] = ()  # of all columns of a file, in order
    delimiter: str = "\t"
    quoted: bool = False
    has_header: bool = False
    missing: tuple[str, ...] = ("",)
    separator: str = "|"  # between the values of a multi-hot column
    is_hex: bool = False  # values of categorical columns are hexadecimal words
    modulus: int | None = None  # of those words
    log_dense: bool = True  # take the logarithm of 1 + x
    threshold: float | None = None  # a label is 1 from here on; as it is if None
    drop_label: float | None = None  # rows with this label are left out, and counted
    sample: str = "all"
    keep: float = 1.0  # the share of rows (or of negative rows) that is kept
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("sample", self.sample, SAMPLES)
        check_range("seed", self.seed, 0, 2**63)
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must lie in (0, 1], got {self.keep}.")
        for name in ("threshold", "drop_label"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}.")
        if not self.separator:
            raise ValueError("separator must have at least one character, got ''.")
        if self.modulus is not None:
            check_range("modulus", self.modulus, 1, 2**32)
