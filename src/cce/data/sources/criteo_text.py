"""Made files in Criteo's format, of any size: for trying a preparation without Criteo's data, for tests and
benchmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cce.checks import check_range
from cce.data.prepare.arrow import Words, as_values, write_text
from cce.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_ROWS = 1 << 16
# ids of the 26 features of the Kaggle challenge, in their order; the largest a tenth of what they are
SIZES = (
    *(1460, 583, 1_013_122, 220_260, 305, 24, 12_517, 633, 3, 93_145, 5_683, 835_159, 3_194),
    *(27, 14_992, 546_130, 10, 5_652, 2_173, 4, 704_656, 18, 15, 28_618, 105, 14_257),
)
MISSING = 0.05  # share of missing values in every column


def write_criteo_text(path: Path, num_rows: int, *, seed: int = 0) -> None:
    """`num_rows` lines: a label, 13 integers and 26 hexadecimal words by Zipf's law, some of them missing."""
    check_range("num_rows", num_rows, 1, 2**63)
    with replace_file(path) as temporary, temporary.open("wb") as file:
        for start in range(0, num_rows, BLOCK_ROWS):
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, start))))
            write_text(file, _block(min(BLOCK_ROWS, num_rows - start), generator))


def _block(num_rows: int, generator: np.random.Generator) -> list[np.ndarray | Words]:
    labels = (generator.random(num_rows) < 0.25).astype(np.int64)
    dense = [_integers(num_rows, generator) for _ in range(13)]
    return [labels, *dense, *(_hex(index, size, num_rows, generator) for index, size in enumerate(SIZES))]


def _integers(num_rows: int, generator: np.random.Generator) -> Words:
    """Counts that are mostly small, from -1 on, some of them missing."""
    drawn = np.minimum(generator.lognormal(2, 2, num_rows), 1e6).astype(np.int32) - 1
    values, indices = np.unique(drawn, return_inverse=True)
    return _words([str(value) for value in values.tolist()], indices, generator)


def _hex(index: int, size: int, num_rows: int, generator: np.random.Generator) -> Words:
    ranks = np.minimum(size ** generator.random(num_rows), size - 1).astype(np.int64)
    values, indices = np.unique(ranks, return_inverse=True)
    scrambled = (values * 2_654_435_761 + index * 40_503) % 2**32
    return _words([f"{value:08x}" for value in scrambled.tolist()], indices, generator)


def _words(values: list[str], indices: np.ndarray, generator: np.random.Generator) -> Words:
    missing = generator.random(len(indices)) < MISSING
    return Words(np.where(missing, -1, indices).astype(np.int32), as_values(values))
