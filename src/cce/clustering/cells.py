"""Points in the cells of a k-d tree cut by a sample of them: one pass finds the cells, one moves the points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cce.clustering.distances import Dims, Floats, Ints, padded
from cce.clustering.groups import choose_cut, part_rows
from cce.compiled import compile_loops

POINTS_IN_CELL = 128  # at most, on average, unless the tree is as deep as it may be
SAMPLED_IN_CELL = 4
DEEPEST = 14  # levels; more cells than this are slow to move points into
MEDIAN_OF = 63  # sampled points that choose where a node is cut: an error in each of many cuts adds up
AT_ONCE = 256  # points that go down the tree together, so that none waits for another


class Tree(NamedTuple):
    """A complete tree of cuts; the children of node `i` are `2 i` and `2 i + 1`, and the root is 1."""

    dimensions: npt.NDArray[np.uint64]  # (num_cells,)
    values: Floats  # (num_cells,) points below it go left


class Cells(NamedTuple):
    """Points in the order of their cells, `[starts[i], starts[i + 1])`."""

    order: Ints  # (n,)
    rows: Floats  # (n, width)
    starts: Ints  # (num_cells + 1,)


def plant_tree(rows: Floats, num_points: int) -> Tree:
    """Return a tree with cells for `num_points` points that are spread as the `rows`."""
    depth = min(DEEPEST, (num_points // POINTS_IN_CELL).bit_length())
    step = max(1, len(rows) // (SAMPLED_IN_CELL << depth))
    return cut_sample(padded(np.ascontiguousarray(rows[::step])), 1 << depth)


@compile_loops
def cut_sample(sample: Floats, num_cells: int) -> Tree:
    """Cut the sample at the median of its widest dimension, and each part again, level by level."""
    num_rows = sample.shape[0]
    order = np.arange(num_rows).astype(np.int32)
    aside, median_of = np.empty(num_rows, np.int32), np.empty(MEDIAN_OF, np.float32)
    dimensions, values = np.zeros(num_cells, np.uint64), np.zeros(num_cells, np.float32)
    starts, ends = np.zeros(2 * num_cells, np.int64), np.full(2 * num_cells, num_rows)
    for node in range(1, num_cells):
        begin, end = starts[node], ends[node]
        middle = begin
        if begin < end:
            dimensions[node], values[node] = choose_cut(sample, order, begin, end, median_of)
            middle = part_rows(sample, order, begin, end, aside, dimensions[node], values[node])
        starts[2 * node], ends[2 * node] = begin, middle
        starts[2 * node + 1], ends[2 * node + 1] = middle, end
    return Tree(dimensions, values)


@compile_loops
def sort_into_cells(rows: Floats, tree: Tree, dims: Dims) -> Cells:
    """Move every point into its cell."""
    num_rows, num_cells = rows.shape[0], tree.values.shape[0]
    cells = find_cells(rows, tree)
    starts = np.zeros(num_cells + 2, np.int32)
    for row in range(np.uint64(num_rows)):
        starts[np.uint64(cells[row]) + np.uint64(2)] += 1
    for cell in range(num_cells):
        starts[cell + 2] += starts[cell + 1]
    order, taken = np.empty(num_rows, np.int32), np.empty((num_rows, len(dims)), np.float32)
    for row in range(np.uint64(num_rows)):
        own = np.uint64(cells[row]) + np.uint64(1)
        place = np.uint64(starts[own])
        starts[own] += 1
        order[place] = row
        for d in range(np.uint64(len(dims))):
            taken[place, d] = rows[row, d]
    return Cells(order, taken, starts[: num_cells + 1])


@compile_loops
def find_cells(rows: Floats, tree: Tree) -> npt.NDArray[np.uint16]:
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
