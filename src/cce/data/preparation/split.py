"""Which rows are for training, for validation and for the test.

`random`: by a hash of the row's index and a seed. `order`: the last rows of the input are held out. `last-file`:
the last file is, one half for validation and one for the test. `temporal`: the latest timestamps are. `last-two`: of
each user, the last row is for the test and the one before it for validation. `files`: each file has its split. `none`:
all rows are for the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cce.data.arrow.blocks import load_numbers
from cce.data.record_format import SPLITS
from cce.hashing import mix

if TYPE_CHECKING:
    from cce.data.preparation.job import Splitting

ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class SplitBlock:
    """What a split is decided by: where a block is, its file, and its rows."""

    path: Path
    file: int
    num_rows: int


def split_codes(blocks: Sequence[SplitBlock], how: Splitting) -> Iterator[np.ndarray]:
    """The index in `SPLITS` of each row, block by block."""
    count = sum(block.num_rows for block in blocks)
    starts = np.cumsum([0, *(block.num_rows for block in blocks)])
    if how.way in ("random", "order", "none"):  # the row's index is all they need
        for block, start in zip(blocks, starts.tolist(), strict=False):
            yield _by_index(np.arange(start, start + block.num_rows), count, how).astype(np.uint8)
        return
    ways = {"last-file": _last_file, "temporal": _temporal, "last-two": _last_two, "files": _files}
    yield from np.split(ways[how.way](blocks, how).astype(np.uint8), starts[1:-1])


def _by_index(indices: np.ndarray, count: int, how: Splitting) -> np.ndarray:
    if how.way == "none":
        return np.full(len(indices), SPLITS.index("test"))
    if how.way == "order":
        bounds = (count - round(count * (how.validation + how.test)), count - round(count * how.test))
        return np.searchsorted(bounds, indices, side="right")
    return np.searchsorted((1 - how.validation - how.test, 1 - how.test), unit_hash(indices, how.seed), side="right")


def _files(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    codes = [SPLITS.index(how.of_files[block.file]) for block in blocks]
    return np.repeat(codes, [block.num_rows for block in blocks])


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


def _last_two(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    """Split by time, equal times in file order. A user's first row is always for training."""
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


def unit_hash(indices: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """A hash in [0, 1) of each index, by splitmix64."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    bits = mix((indices.astype(np.uint64) + np.uint64(1)) * ODD + start)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)
