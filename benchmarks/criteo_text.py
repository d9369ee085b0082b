"""Made files in Criteo's format, of any size: for benchmarks and tests of preparation without Criteo's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
    with replace_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for start in range(0, num_rows, BLOCK_ROWS):
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, start))))
            columns = _block(min(BLOCK_ROWS, num_rows - start), generator)
            file.writelines("\t".join(line) + "\n" for line in zip(*columns, strict=True))


def _block(num_rows: int, generator: np.random.Generator) -> list[list[str]]:
    labels = (generator.random(num_rows) < 0.25).astype(np.int64)
    dense = [_integers(num_rows, generator) for _ in range(13)]
    return [
        list(map(str, labels)),
        *dense,
        *(_hex(index, size, num_rows, generator) for index, size in enumerate(SIZES)),
    ]


def _integers(num_rows: int, generator: np.random.Generator) -> list[str]:
    """Counts that are mostly small, from -1 on, some of them missing."""
    drawn = np.minimum(generator.lognormal(2, 2, num_rows), 1e6).astype(np.int64) - 1
    return _with_missing([str(value) for value in drawn.tolist()], generator)


def _hex(index: int, size: int, num_rows: int, generator: np.random.Generator) -> list[str]:
    ranks = np.minimum(size ** generator.random(num_rows), size - 1).astype(np.int64)
    scrambled = (ranks * 2_654_435_761 + index * 40_503) % 2**32
    return _with_missing([f"{value:08x}" for value in scrambled.tolist()], generator)


def _with_missing(values: list[str], generator: np.random.Generator) -> list[str]:
    missing = generator.random(len(values)) < MISSING
    return ["" if gone else value for value, gone in zip(values, missing.tolist(), strict=True)]
