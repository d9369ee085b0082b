"""The loops of `PointerDescent`: sum the gradients of each row, and move codes. `code_steps` has the definition."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops
from cce.optim.stochastic_rounding import shift_at, spread_at, uniform_at

Array = np.ndarray[Any, Any]


NEVER = 1e-30  # visits of a group in which no id was seen
DIGIT = 11  # bits of a row that are sorted by at a time
SHIFT = 21  # bits of a float32 that a level of a second moment leaves out: two of its mantissa stay
OFFSET = (127 - 40) << (23 - SHIFT)  # of levels, which begin at 2**-40 and end at 2**24


@compile_loops
def sort_rows(rows: Array, num_rows: int, order: Array, scratch: Array) -> int:
    """List the indices of `rows` in `order`, smallest row first, equal ones as they come; rows below 0 are left out.

    A radix sort. Returns how many are listed; `scratch` is as long as `rows`.
    """
    count, shift = 0, 0
    for i in range(len(rows)):
        if rows[i] >= 0:
            order[count] = i
            count += 1
    ends = np.empty(1 << DIGIT, np.int64)
    while num_rows >> shift > 0:
        ends[:] = 0
        for i in range(count):
            ends[(rows[order[i]] >> shift) & ((1 << DIGIT) - 1)] += 1
        for digit in range(1, 1 << DIGIT):
            ends[digit] += ends[digit - 1]
        for i in range(count - 1, -1, -1):
            digit = (rows[order[i]] >> shift) & ((1 << DIGIT) - 1)
            ends[digit] -= 1
            scratch[ends[digit]] = order[i]
        order[:count] = scratch[:count]
        shift += DIGIT
    return count


@compile_loops
def sum_rows(
    rows: Array, order: Array, values: Array, starts: Array, into: tuple[Array, Array, Array], squares: Array
) -> int:
    """Sum `values` by row, in `order`, in which rows do not fall, and the squares of the sums by group.

    into: the rows that occur, their groups, and their sums. Returns how many there are.
    """
    distinct, groups, sums = into
    width, count, group, last = values.shape[1], -1, 0, -1
    for i in range(len(order)):
        row = rows[order[i]]
        if row != last:
            if count >= 0:
                _add_squares(squares, groups[count], sums, count)
            count, last = count + 1, row
            while group + 1 < len(starts) and row >= starts[group + 1]:
                group += 1
            distinct[count], groups[count] = row, group
            for k in range(width):
                sums[count, k] = values[order[i], k]
        else:
            for k in range(width):
                sums[count, k] += values[order[i], k]
    if count >= 0:
        _add_squares(squares, groups[count], sums, count)
    return count + 1


@compile_loops
def _add_squares(squares: Array, group: Any, sums: Array, i: Any) -> None:
    for k in range(sums.shape[1]):
        value = np.float64(sums[i, k])
        squares[group, k] += value * value


@compile_loops
def follow_means(moments: tuple[Array, Array], squares: Array, groups: Array, sizes: Array, beta: float) -> None:
    """Let running means of squares and visits follow a batch."""
    mean_squares, mean_visits = moments
    counts = np.zeros(len(sizes), np.int64)
    for i in range(len(groups)):
        counts[groups[i]] += 1
    for g in range(len(sizes)):
        size = np.float64(sizes[g])
        mean_visits[g, 0] = np.float64(mean_visits[g, 0]) * beta + counts[g] / size * (1 - beta)
        for k in range(squares.shape[1]):
            mean_squares[g, k] = np.float64(mean_squares[g, k]) * beta + squares[g, k] / size * (1 - beta)


@compile_loops
def follow_moments(
    moments: tuple[Array, Array],
    batch: tuple[Array, Array, Array, Array],
    settings: tuple[float, float, float, float, float],
    keep: Array,
    gain: Array,
) -> None:
    """See `code_moments`, whose formulas these are."""
    (mean_squares, mean_visits), (squares, groups, sizes, scale) = moments, batch
    lr, decay, beta, eps, weight = settings
    follow_means(moments, squares, groups, sizes, beta)
    for g in range(len(sizes)):
        visits = max(np.float64(mean_visits[g, 0]) / weight, NEVER)
        window = max((1 - beta) / visits, 1.0)
        for k in range(squares.shape[1]):
            root = np.sqrt(np.float64(mean_squares[g, k]) / weight * window) + eps
            kept = 1 / (1 + lr * decay / (visits * root))
            delta = scale[g if len(scale) > 1 else 0, k if scale.shape[1] > 1 else 0]
            keep[g, k], gain[g, k] = kept, lr * kept / (root * delta)


@compile_loops
def follow_rates(
    moments: tuple[Array, Array],
    batch: tuple[Array, Array, Array, Array],
    settings: tuple[float, float, float, float, float],
    unit: float,
    rates: tuple[Array, Array, Array, Array],
) -> None:
    """See `row_moments`, whose formulas these are."""
    (mean_squares, mean_visits), (squares, groups, sizes, scale) = moments, batch
    (lr, decay, beta, eps, weight), (inverse, gain, shrink, least) = settings, rates
    follow_means(moments, squares, groups, sizes, beta)
    width = squares.shape[1]
    for g in range(len(sizes)):
        visits, total = max(np.float64(mean_visits[g, 0]) / weight, NEVER), 0.0
        for k in range(width):
            total += np.float64(mean_squares[g, k])
        mean = total / width
        least[g] = mean / weight / visits / unit * (1 - beta)
        for k in range(width):
            square = np.float64(mean_squares[g, k]) / mean * unit if mean_squares[g, k] > 0 else 0.0
            root = np.sqrt(square) + eps
            delta = scale[g if len(scale) > 1 else 0, k if scale.shape[1] > 1 else 0]
            inverse[g, k] = 1 / square if square > 0 else 0.0
            gain[g, k] = lr / (root * delta) if square > 0 else 0.0
            shrink[g, k] = lr * decay / (visits * root) if square > 0 else 0.0


@compile_loops
def rescale_codes(codes: Array, starts: Array, factor: Array, key: Any, largest: Any, first: int, last: int) -> None:
    """`code = round(factor · code)` for the rows in `[first, last)`, within the largest code.

    factor: float32 `(1 or groups, 1 or width)`; `starts` has the first row of each group.
    """
    width, group = np.uint64(codes.shape[1]), 0
    for row in range(first, last):
        if len(factor) > 1:
            group = int(np.searchsorted(starts, row, side="right")) - 1
        place = np.uint64(row) * width
        for k in range(codes.shape[1]):
            moved = factor[group, k if factor.shape[1] > 1 else 0] * np.float32(codes[row, k])
            rounded = np.floor(moved + uniform_at(key, place + np.uint64(k)))
            codes[row, k] = min(max(rounded, -largest), largest)


@compile_loops
def move_codes(
    codes: Array,
    summed: tuple[Array, Array, Array],
    keep: Array,
    gain: Array,
    key: Any,
    largest: Any,
    first: int,
    last: int,
) -> None:
    """`code = round(keep · code - gain · sum)` for the summed rows in `[first, last)`, within the largest code."""
    rows, groups, sums = summed
    width = np.uint64(codes.shape[1])
    for i in range(first, last):
        row, group = rows[i], groups[i]
        place = np.uint64(row) * width
        for k in range(codes.shape[1]):
            code = np.float32(codes[row, k])
            moved = keep[group, k] * code - gain[group, k] * sums[i, k]
            rounded = np.floor(moved + uniform_at(key, place + np.uint64(k)))
            codes[row, k] = min(max(rounded, -largest), largest)


@compile_loops
def move_rows(
    codes: Array,
    summed: tuple[Array, Array, Array],
    rates: tuple[Array, Array, Array, Array],
    state: tuple[Array, Array],
    values: Array,
    numbers: tuple[float, float],
    keys: tuple[Any, Any],
    largest: Any,
    first: int,
    last: int,
) -> None:
    """The step of `row_moments` for the summed rows in `[first, last)`."""
    (rows, groups, sums), (inverse, gain, shrink, least), (levels, visits) = summed, rates, state
    (beta, weight), (level_key, code_key) = numbers, keys
    width, one, number = codes.shape[1], np.float32(1), np.empty(1, np.float32)
    bits = number.view(np.int32)
    for i in range(first, last):
        row, group, total = rows[i], groups[i], 0.0
        for k in range(width):
            value = np.float64(sums[i, k])
            total += value * value * inverse[group, k]
        square = np.float64(values[levels[row]]) * beta + total / width * (1 - beta)
        visits[row] = (np.int64(visits[row]) + 1) & 255
        if not square > 0:
            continue
        number[0] = square
        noise = np.int64(uniform_at(level_key, np.uint64(row)) * np.float32(1 << SHIFT))
        level = ((np.int64(bits[0]) + noise) >> SHIFT) - OFFSET
        levels[row] = min(max(level, 1), 255)
        speed = np.float32(np.sqrt(weight / square))
        pull = np.float32(np.sqrt(weight / max(square, least[group])))
        shift, place = shift_at(visits[row]), np.uint64(row) * np.uint64(width)
        for k in range(width):
            kept = one / (one + shrink[group, k] * pull)
            moved = kept * (np.float32(codes[row, k]) - gain[group, k] * speed * sums[i, k])
            rounded = np.floor(moved + spread_at(code_key, place + np.uint64(k), shift))
            codes[row, k] = min(max(rounded, -largest), largest)
