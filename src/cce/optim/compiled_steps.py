"""Steps of many parameters in compiled loops, row by row of their gradients.

`tables` has a line for each parameter, of the columns named here. `INDICES` is 0 for a dense gradient, whose rows are
those of the parameter. Entries of all gradients are numbered one after the other, and a call handles those in
`[first, last)`. Rows are independent, so any cut gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory

Array = np.ndarray[Any, Any]

NUM_COLUMNS = 8
PARAMETER, INDICES, VALUES, COUNT, NUM_ROWS, WIDTH, STATE, ORDER = range(NUM_COLUMNS)
SORTED, UNSORTED, OUTSIDE = range(3)  # order: rows strictly increase; they do not; some are not rows of the parameter

ONE, FOUR, SIXTEEN = memory.RUNS[1], memory.RUNS[4], memory.RUNS[16]
read_int64 = memory.read_int64
add_product, add_quotient = memory.add_product, memory.add_quotient
sum_squares, grow = memory.sum_squares, memory.grow


@compile_loops
def inspect(tables: Array) -> tuple[int, int, int]:
    """Note the order of each gradient's rows: the worst order, the number of entries, and of values in them."""
    worst, num_entries, size = SORTED, 0, 0
    for t in range(len(tables)):
        order, before = SORTED, -1
        if tables[t, INDICES]:
            for i in range(tables[t, COUNT]):
                row = read_int64(tables[t, INDICES] + 8 * i)
                if row < 0 or row >= tables[t, NUM_ROWS]:
                    order = OUTSIDE
                    break
                if row <= before:
                    order = UNSORTED
                before = row
        tables[t, ORDER] = order
        worst = max(worst, order)
        num_entries += tables[t, COUNT]
        size += tables[t, COUNT] * tables[t, WIDTH]
    return worst, num_entries, size


@compile_loops
def entries(line: Array, start: int, first: int, last: int) -> tuple[int, int]:
    """The entries in `[first, last)` of a gradient whose first entry has index `start`.

    Where a row may occur several times, all of them belong to the call that has the first.
    """
    if line[ORDER] == UNSORTED:
        return 0, line[COUNT] if first <= start < last else 0
    return max(0, first - start), min(line[COUNT], last - start)


@compile_loops
def add_row(into: int, grad: int, width: int, item: int, rate: Any) -> None:
    """`into += rate · grad`, in runs of 16, 4 and 1."""
    k = 0
    while k + 16 <= width:
        add_product(into + k * item, grad + k * item, rate, SIXTEEN)
        k += 16
    while k + 4 <= width:
        add_product(into + k * item, grad + k * item, rate, FOUR)
        k += 4
    while k < width:
        add_product(into + k * item, grad + k * item, rate, ONE)
        k += 1


@compile_loops
def squares(grad: int, width: int, item: int, zero: Any) -> Any:
    """The sum of squares of a row. `zero` has the type of its values."""
    total, k = zero, 0
    while k + 16 <= width:
        total += sum_squares(grad + k * item, zero, SIXTEEN)
        k += 16
    while k + 4 <= width:
        total += sum_squares(grad + k * item, zero, FOUR)
        k += 4
    while k < width:
        total += sum_squares(grad + k * item, zero, ONE)
        k += 1
    return total


@compile_loops
def add_divided_row(into: int, grad: int, width: int, item: int, rate: Any, divisor: Any) -> None:
    """`into += rate · (grad / divisor)`, in runs of 16, 4 and 1."""
    k = 0
    while k + 16 <= width:
        add_quotient(into + k * item, grad + k * item, divisor, rate, SIXTEEN)
        k += 16
    while k + 4 <= width:
        add_quotient(into + k * item, grad + k * item, divisor, rate, FOUR)
        k += 4
    while k < width:
        add_quotient(into + k * item, grad + k * item, divisor, rate, ONE)
        k += 1


@compile_loops
def step_adagrad(tables: Array, rates: Array, eps: Any, first: int, last: int) -> None:
    """`s += mean(g²)`, then `p += rate · (g / (√s + eps))`, with one `s` for each row. No row may occur twice."""
    item, start = rates.itemsize, 0
    for t in range(len(tables)):
        low, high = entries(tables[t], start, first, last)
        start += tables[t, COUNT]
        into, indices, values, width = tables[t, PARAMETER], tables[t, INDICES], tables[t, VALUES], tables[t, WIDTH]
        length = rates.dtype.type(width)
        for i in range(low, high):
            row = read_int64(indices + 8 * i) if indices else i
            grad = values + i * width * item
            total = grow(tables[t, STATE] + row * item, squares(grad, width, item, eps - eps) / length)
            add_divided_row(into + row * width * item, grad, width, item, rates[t], np.sqrt(total) + eps)
