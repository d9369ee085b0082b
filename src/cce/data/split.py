"""Which rows are for training, for validation and for the test.

`random`: by a hash of the row's number and a seed. `order`: the last rows of the input are held out. `last-file`:
the last file is, one half for validation and one for the test. `temporal`: the latest timestamps are. `column`:
given values of a column are. `last-two`: of each user, the last row is for the test and the one before it for
validation. `none`: all rows are for the test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cce.checks import check_choice, check_range
from cce.data.arrow import load_numbers, load_words
from cce.data.hashing import unit_hash
from cce.data.manifest import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

WAYS = {  # with the options that each uses
    "random": ("validation", "test", "seed"),
    "order": ("validation", "test"),
    "last-file": (),
    "temporal": ("validation", "test"),
    "column": ("column", "validation_values", "test_values"),
    "last-two": (),
    "none": (),
}


@dataclass(frozen=True)
class Splitting:
    """How rows are held out."""

    way: str = "random"
    validation: float = 0.1  # share of the rows
    test: float = 0.1
    seed: int = 0
    column: str | None = None
    validation_values: tuple[str, ...] = ()
    test_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("split", self.way, WAYS)
        check_range("seed", self.seed, 0, 2**63)
        if not (self.validation >= 0 and self.test >= 0 and self.validation + self.test < 1):
            shares = f"{self.validation} and {self.test}"
            raise ValueError(f"validation and test must be shares that leave rows to train on, got {shares}.")
        if self.way == "column" and self.column is None:
            raise ValueError("split_column must be given to split by column.")

    def adjusted(self, way: str | None, given: Mapping[str, Any]) -> Splitting:
        """Split another `way`, or with other options; options that have no effect are refused."""
        base = self if way is None else Splitting(way, column=given.get("column"))
        unused = [name for name in given if name not in WAYS[base.way]]
        if unused:
            name = "split_column" if unused[0] == "column" else unused[0]
            raise ValueError(f"{name} must be left out with split {base.way!r}, got {given[unused[0]]!r}.")
        return replace(base, **given)


@dataclass(frozen=True)
class SplitBlock:
    """What a split is decided by: where a block is, its file, and its rows."""

    path: Path
    file: int
    num_rows: int


def split_codes(blocks: Sequence[SplitBlock], how: Splitting) -> Iterator[np.ndarray]:
    """For each block, the place in `SPLITS` of each of its rows."""
    count = sum(block.num_rows for block in blocks)
    starts = np.cumsum([0, *(block.num_rows for block in blocks)])
    if how.way in ("random", "order", "none"):  # these know a row by its number, and need no other
        for block, start in zip(blocks, starts.tolist(), strict=False):
            yield _by_number(np.arange(start, start + block.num_rows), count, how).astype(np.uint8)
        return
    ways = {"last-file": _last_file, "temporal": _temporal, "column": _column, "last-two": _last_two}
    yield from np.split(ways[how.way](blocks, how).astype(np.uint8), starts[1:-1])


def _by_number(numbers: np.ndarray, count: int, how: Splitting) -> np.ndarray:
    if how.way == "none":
        return np.full(len(numbers), SPLITS.index("test"))
    if how.way == "order":
        bounds = (count - round(count * (how.validation + how.test)), count - round(count * how.test))
        return np.searchsorted(bounds, numbers, side="right")
    return np.searchsorted((1 - how.validation - how.test, 1 - how.test), unit_hash(numbers, how.seed), side="right")


def _last_file(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    del how
    files = np.repeat([block.file for block in blocks], [block.num_rows for block in blocks])
    held_out = np.flatnonzero(files == files.max(initial=0))
    codes = np.zeros(len(files), np.uint8)
    codes[held_out[: len(held_out) // 2]] = 1
    codes[held_out[len(held_out) // 2 :]] = 2
    return codes


def _temporal(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    """Rows of the same time stay together."""
    times = _numbers(blocks, "timestamp")
    first, second = np.quantile(times, [1 - how.validation - how.test, 1 - how.test], method="higher")
    bounds = (first if how.validation + how.test else np.inf, second if how.test else np.inf)
    return np.searchsorted(bounds, times, side="right")


def _column(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    codes = []
    for block in blocks:
        words = load_words(block.path, f"word {how.column}")
        names = [str(value) for value in words.values.to_pylist()]
        code_of = [2 if name in how.test_values else int(name in how.validation_values) for name in names]
        codes.append(np.array([*code_of, 0], np.uint8)[words.indices])  # the last is for a missing value
    return np.concatenate(codes)


def _last_two(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    """By time, and among equal times in file order. A user's first row is always for training."""
    del how
    users, times = _numbers(blocks, "user"), _numbers(blocks, "timestamp")
    order = np.lexsort((np.arange(len(users)), times, users))
    first = np.flatnonzero(np.append(True, users[order][1:] != users[order][:-1]))
    lengths = np.diff([*first, len(users)])
    from_end = np.repeat(first + lengths, lengths) - np.arange(len(users))  # 1 for a user's last row
    from_start = np.arange(len(users)) - np.repeat(first, lengths)
    codes = np.zeros(len(users), np.uint8)
    codes[order] = np.where(from_start == 0, 0, np.select([from_end == 1, from_end == 2], [2, 1], 0))
    return codes


def _numbers(blocks: Sequence[SplitBlock], name: str) -> np.ndarray:
    return np.concatenate([load_numbers(block.path, name) for block in blocks])
