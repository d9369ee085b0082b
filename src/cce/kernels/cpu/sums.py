"""Rows in, vectors out, and gradients back: what `gather_sum` does, in compiled loops, a block of ids at a time.

What is the same for every id is known when the loops are compiled (`plan.Specialisation`): the lengths of the first
three tuples of `special` say how many floats one instruction handles, how many rows are added up, and how many columns
there are. Where the last two are empty, any number will do, and a row may be several runs of floats long. (The fourth
is the run for whole vectors.) `kind` says how floats are stored: see `compiled.memory`. Vectors, gradients of vectors
and gradients of the codebook are float32, or float64 where the codebook is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import BLOCK

Array = np.ndarray[Any, Any]

put, put_sum, add, clear = memory.put, memory.put_sum, memory.add, memory.clear


@compile_loops
def gather_block(
    codebook: Any,
    rows: Array,
    start: Any,
    count: Any,
    shape: Any,
    into: Any,
    stride: Any,
    sizes: Any,
    kind: Any,
    special: Any,
) -> None:
    """Write `count` vectors at `into`, `stride` bytes apart. `sizes`: bytes of a stored float and of a sum."""
    item, total = sizes
    run, terms, columns, _ = special
    num_columns = len(columns) if len(columns) else shape[0]
    num_terms = len(terms) if len(terms) else shape[1]
    num_runs = 1 if len(terms) else shape[2] // len(run)
    row_bytes = num_runs * len(run) * item
    for i in range(count):
        at = np.uint64(start + i)
        here = into + i * stride
        if rows[at] < 0:
            for k in range(num_columns * num_runs):
                clear(here + k * len(run) * total, kind, run)
            continue
        for _ in range(num_columns):
            first = codebook + np.int64(rows[at]) * row_bytes
            if num_terms == 1:
                for k in range(num_runs):
                    put(here + k * len(run) * total, first + k * len(run) * item, kind, run)
            else:
                second = codebook + np.int64(rows[at + np.uint64(BLOCK)]) * row_bytes
                for k in range(num_runs):
                    step = k * len(run) * item
                    put_sum(here + k * len(run) * total, first + step, second + step, kind, run)
            for term in range(2, num_terms):
                more = codebook + np.int64(rows[at + np.uint64(term * BLOCK)]) * row_bytes
                for k in range(num_runs):
                    add(here + k * len(run) * total, more + k * len(run) * item, kind, run)
            at += np.uint64(num_terms * BLOCK)
            here += num_runs * len(run) * total


@compile_loops
def scatter_block(
    table: Any,
    rows: Array,
    start: Any,
    count: Any,
    first_column: Any,
    num_columns: Any,
    shape: Any,
    grad: Any,
    stride: Any,
    total: Any,
    kind: Any,
    special: Any,
) -> None:
    """Add the gradients of `count` vectors at `grad` to the rows of the gradient table that they came from."""
    run, terms, columns, _ = special
    num_columns = len(columns) if len(columns) else num_columns
    num_terms = len(terms) if len(terms) else shape[1]
    num_runs = 1 if len(terms) else shape[2] // len(run)
    row_bytes = num_runs * len(run) * total
    for i in range(count):
        if rows[np.uint64(start + i)] < 0:
            continue
        at = np.uint64(start + i + first_column * num_terms * BLOCK)
        here = grad + i * stride + first_column * row_bytes
        for _ in range(num_columns):
            for _ in range(num_terms):
                row = table + np.int64(rows[at]) * row_bytes
                for k in range(num_runs):
                    add(row + k * len(run) * total, here + k * len(run) * total, kind, run)
                at += np.uint64(BLOCK)
            here += row_bytes
