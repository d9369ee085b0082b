"""Sizes of compact tables: which shapes a table may have, and which of them share a number of bytes best.

Each table has some shapes, each with its bytes and its squared error. Several tables share a budget by taking,
again and again, the step of any table that lowers the error most for each byte, as long as it fits (Shoham and Gersho,
"Efficient bit allocation for an arbitrary set of quantizers", 1988). A larger budget never has a larger error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cce.indexing import pointer_bits, pointer_nbytes

LEVELS = 256  # of int8
EXACT = 64  # ids whose own vectors make up the codebook, however few bytes their int8 rows have
ONE_COLUMN = (2, 4, 16, 64, 256, 1024, 4096)  # rows of a codebook
SOME_COLUMNS = {2: (64, 256, 1024), 4: (16, 64, 256)}
MORE_COLUMNS = (256,)
ALL_COLUMNS = (4, 8, 16, 32, 64, 128, LEVELS)  # one for each value of a vector: fitted in no time


class Shape(NamedTuple):
    """Codebooks of this many columns and rows."""

    num_columns: int
    num_rows: int

    @property
    def bits(self) -> int:
        """Bits of the pointers of an id."""
        return self.num_columns * pointer_bits(self.num_rows)

    def nbytes(self, num_ids: int, dim: int, itemsize: int) -> int:
        """Bytes of pointers and codebooks."""
        return pointer_nbytes(num_ids, *self) + self.num_rows * dim * itemsize

    def __str__(self) -> str:
        return f"{self.num_columns} × {self.num_rows:,}"


class Option(NamedTuple):
    """A shape of a table, with its bytes and what it costs: a squared error, or a loss that follows from it."""

    shape: Shape
    nbytes: int
    error: float


def shapes_within(
    nbytes: int, num_ids: int, dim: int, itemsize: int = 4, *, num_vectors: int | None = None, is_limited: bool = False
) -> list[Shape]:
    """Shapes for this many ids of at most `nbytes`, none with more rows than ids; at least one.

    The last one is the finest: a column for each value and all levels of int8 is exact. Shapes whose bytes are mostly
    those of the codebook are left out: another one has twice the bits of pointers in as many bytes.

    A table of up to 64 ids keeps its vectors exactly, as float rows of one codebook. It may so grow by a few kB: 64 ids
    with 16 values take 4.1 kB instead of 1.2 kB of int8 rows. Smaller shapes are there only if sizes are limited.

    num_vectors: that the ids share, if not one each.
    is_limited: whether a number of bytes or bits is to be met.
    """
    shapes = [Shape(dim, rows) for rows in ALL_COLUMNS]
    for columns in (2**n for n in range(dim.bit_length()) if dim % 2**n == 0 and (n == 0 or 2**n < dim / 2)):
        rows_of = ONE_COLUMN if columns == 1 else SOME_COLUMNS.get(columns, MORE_COLUMNS)
        shapes += [Shape(columns, rows) for rows in rows_of if columns < dim]
    fitting = [s for s in shapes if s.num_rows <= num_ids and s.nbytes(num_ids, dim, itemsize) <= nbytes]
    sized = {shape: shape.nbytes(num_ids, dim, itemsize) for shape in fitting}
    best = [s for s in sized if not any(o.bits >= 2 * s.bits and sized[o] <= sized[s] for o in sized)] or [Shape(1, 1)]
    if num_ids > EXACT:
        return sorted(best)
    exact = Shape(1, num_vectors or num_ids)
    return [*(shape for shape in sorted(best) if is_limited and shape != exact), exact]


def least_nbytes(tables: Mapping[str, Sequence[Option]]) -> int:
    """Bytes of the smallest shapes."""
    return sum(min(option.nbytes for option in options) for options in tables.values())


def allocate(tables: Mapping[str, Sequence[Option]], nbytes: int) -> dict[str, Option]:
    """The options of all tables that have a small error together within `nbytes`.

    Every step is the best for each byte of all that still fit. So where a larger budget first takes a step for which
    the smaller one has no room, that step gains more than all that the smaller one can still take: it is longer than
    the room there, and gains more for each byte.
    """
    chosen = {name: min(options, key=lambda each: (each.nbytes, each.error)) for name, options in tables.items()}
    room = nbytes - sum(option.nbytes for option in chosen.values())
    while True:
        steps = [
            (_gain(chosen[name], option), name, option)
            for name, options in tables.items()
            for option in options
            if option.nbytes - chosen[name].nbytes <= room and option.error < chosen[name].error
        ]
        if not steps:
            return chosen
        _, name, step = max(steps, key=lambda each: each[0])
        room -= step.nbytes - chosen[name].nbytes
        chosen[name] = step


def _gain(before: Option, after: Option) -> float:
    """How much the error falls for each byte; an option that takes no more bytes comes first."""
    nbytes = after.nbytes - before.nbytes
    return (before.error - after.error) / nbytes if nbytes > 0 else math.inf
