"""Points sorted into cells by a k-d tree (Bentley, 1975), so that neighbours lie side by side in small boxes.

The tree is cut from a sample; two passes over the points then move each to its cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cce.compiled import compile_loops

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Rows = npt.NDArray[Any]  # float32 or float64

WIDTH = 4  # of all points here, so that inner loops disappear; fewer dimensions are padded with zeros: they add nothing
POINTS_IN_CELL = 128  # at most, on average
SAMPLED_IN_CELL = 4
DEEPEST = 16  # levels of the tree; cells are numbered in 16 bits
MEDIAN_OF = 63  # sampled points that choose where a node is cut: an error in each of many cuts adds up
AT_ONCE = 256  # points that go down the tree together, so that none waits for another


class SplitTree(NamedTuple):
    """A complete tree of cuts; the children of node `i` are `2 i` and `2 i + 1`, and the root is 1."""

    dimensions: npt.NDArray[np.uint64]  # (num_cells,)
    values: Floats  # (num_cells,) points below it go left


class Cells(NamedTuple):
    """Points in the order of their cells, `[starts[i], starts[i + 1])`."""

    order: Ints  # (n,)
    rows: Floats  # (n, width)
    starts: Ints  # (num_cells + 1,)


class Found(NamedTuple):
    """What a search says of every point."""

    nearest: Ints  # (n,)
    squares: Rows  # (n,) squared distance to it


def padded(rows: Floats) -> Floats:
    """Return `(n, width)` rows as they are, or with zeros up to the width of all points here."""
    if rows.shape[1] == WIDTH:
        return rows
    wider = np.zeros((rows.shape[0], WIDTH), dtype=np.float32)
    wider[:, : rows.shape[1]] = rows
    return wider


def build_split_tree(rows: Floats, num_points: int) -> SplitTree:
    """Return a tree with cells for `num_points` points that are spread as the `rows`, which are padded."""
    depth = min(DEEPEST, (num_points // POINTS_IN_CELL).bit_length())
    step = max(1, len(rows) // (SAMPLED_IN_CELL << depth))
    num_cells = 1 << depth
    tree = SplitTree(np.zeros(num_cells, np.uint64), np.zeros(num_cells, np.float32))
    cut_sample(np.ascontiguousarray(rows[::step]), tree)
    return tree


# Compiled code that Python calls returns no arrays: numba calls Python to make them, and does not look whether that was
# interrupted. It would crash.
@compile_loops
def cut_sample(sample: Floats, tree: SplitTree) -> None:
    """Cut the sample at the median of its widest dimension, and each part again, level by level."""
    num_rows, num_cells = sample.shape[0], tree.values.shape[0]
    order = np.arange(num_rows).astype(np.int32)
    spare, median_of = np.empty(num_rows, np.int32), np.empty(MEDIAN_OF, np.float32)
    starts, ends = np.zeros(2 * num_cells, np.int64), np.full(2 * num_cells, num_rows)
    for node in range(1, num_cells):
        begin, end = starts[node], ends[node]
        middle = begin
        if begin < end:
            dimension, value = choose_cut(sample, order, begin, end, median_of)
            tree.dimensions[node], tree.values[node] = dimension, value
            middle = part_rows(sample, order, begin, end, spare, dimension, value)
        starts[2 * node], ends[2 * node] = begin, middle
        starts[2 * node + 1], ends[2 * node + 1] = middle, end


@compile_loops
def part_rows(
    rows: Floats, order: Ints, begin: int, end: int, spare: Ints, dimension: np.uint64, value: np.float32
) -> int:
    """Put the points at positions `[begin, end)` that are below the value first; return where the others begin."""
    left, right = np.uint64(begin), np.uint64(0)
    for position in range(np.uint64(begin), np.uint64(end)):  # without a branch, which would be a coin toss
        row = order[position]
        is_left = np.uint64(rows[np.uint64(row), dimension] < value)
        order[left] = row
        spare[right] = row
        left += is_left
        right += np.uint64(1) - is_left
    for index in range(right):
        order[left + index] = spare[index]
    return int(left)


@compile_loops
def choose_cut(rows: Floats, order: Ints, begin: int, end: int, values: Floats) -> tuple[np.uint64, np.float32]:
    """Return the dimension in which a sample of the points spreads most, and the sample's median there.

    `values` has space for the sample.
    """
    num_sampled = min(values.shape[0], end - begin)
    step = (end - begin) // num_sampled
    widest, best_dimension = np.float32(-1), 0
    for dimension in range(rows.shape[1]):
        low = high = rows[order[begin], dimension]
        for index in range(1, num_sampled):
            value = rows[order[begin + index * step], dimension]
            low, high = min(low, value), max(high, value)
        if high - low > widest:
            widest, best_dimension = high - low, dimension
    for index in range(num_sampled):
        value = rows[order[begin + index * step], best_dimension]
        slot = index
        while slot > 0 and values[slot - 1] > value:
            values[slot] = values[slot - 1]
            slot -= 1
        values[slot] = value
    return np.uint64(best_dimension), values[num_sampled // 2]


def sort_into_cells(rows: Floats, tree: SplitTree) -> Cells:
    """Move every point into its cell."""
    num_rows, num_cells = len(rows), len(tree.values)
    starts = np.zeros(num_cells + 2, np.int32)
    cells = Cells(np.empty(num_rows, np.int32), np.empty((num_rows, WIDTH), np.float32), starts[: num_cells + 1])
    sort_rows(rows, tree, cells, starts)
    return cells


@compile_loops
def sort_rows(rows: Floats, tree: SplitTree, into: Cells, starts: Ints) -> None:
    """Put the points into the order of their cells; `starts` is zero, and a place longer than that of the result."""
    cells = find_cells(rows, tree)
    for row in range(np.uint64(rows.shape[0])):
        starts[np.uint64(cells[row]) + np.uint64(2)] += 1
    for cell in range(tree.values.shape[0]):
        starts[cell + 2] += starts[cell + 1]
    for row in range(np.uint64(rows.shape[0])):
        own = np.uint64(cells[row]) + np.uint64(1)
        slot = np.uint64(starts[own])
        starts[own] += 1
        into.order[slot] = row
        for d in range(np.uint64(WIDTH)):
            into.rows[slot, d] = rows[row, d]


@compile_loops
def find_cells(rows: Floats, tree: SplitTree) -> npt.NDArray[np.uint16]:
    """Return the cell of every point: all go down one level, then all the next, without branches."""
    num_rows, num_cells = rows.shape[0], tree.values.shape[0]
    cells, nodes = np.empty(num_rows, np.uint16), np.empty(AT_ONCE, np.uint64)
    for begin in range(0, num_rows, AT_ONCE):
        count, first = np.uint64(min(AT_ONCE, num_rows - begin)), np.uint64(begin)
        nodes[:] = 1
        level = 1
        while level < num_cells:
            for index in range(count):
                node = nodes[index]
                is_right = np.uint64(rows[first + index, tree.dimensions[node]] >= tree.values[node])
                nodes[index] = node + node + is_right
            level *= 2
        for index in range(count):
            cells[first + index] = np.uint16(nodes[index] - np.uint64(num_cells))
    return cells
