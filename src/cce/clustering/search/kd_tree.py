"""Points sorted by k-d trees (Bentley, 1975), so that neighbours lie side by side in small boxes.

`sort_points` cuts all points into leaves of bounded size, with parents above them: for searches that come back to the
same points, as the iterations of k-means do. `sort_into_cells` needs two passes over the points and a tree that was
cut from a sample: for points that are searched once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cce.clustering.search.distances import Dims, Floats, Ints, padded
from cce.compiled import compile_loops, parallel_for

PIECE = 1 << 17  # points cut into leaves at once: they stay in the cache
SAMPLE = 15  # points that choose where a node is cut
DEEPEST = 64  # nodes that may wait to be cut; beyond it nodes are halved, which cannot go on for long
POINTS_IN_CELL = 128  # at most, on average, unless the tree is as deep as it may be
SAMPLED_IN_CELL = 4
DEEPEST_SPLITS = 14  # levels; more cells than this are slow to move points into
MEDIAN_OF = 63  # sampled points that choose where a node is cut: an error in each of many cuts adds up
AT_ONCE = 256  # points that go down the tree together, so that none waits for another


class Boxes(NamedTuple):
    """Runs of points, `[starts[i], starts[i + 1])`, and the smallest box around each."""

    starts: Ints  # (num_boxes + 1,)
    low: Floats  # (num_boxes, width)
    high: Floats  # (num_boxes, width)


class KDTree(NamedTuple):
    """Points in leaves, and leaves in parents."""

    leaves: Boxes  # runs of points
    parents: Boxes  # runs of leaves


class SplitTree(NamedTuple):
    """A complete tree of cuts; the children of node `i` are `2 i` and `2 i + 1`, and the root is 1."""

    dimensions: npt.NDArray[np.uint64]  # (num_cells,)
    values: Floats  # (num_cells,) points below it go left


class Cells(NamedTuple):
    """Points in the order of their cells, `[starts[i], starts[i + 1])`."""

    order: Ints  # (n,)
    rows: Floats  # (n, width)
    starts: Ints  # (num_cells + 1,)


def sort_points(rows: Floats) -> tuple[Ints, Floats, KDTree]:
    """Return an order of the points, the points in that order, and their tree.

    Points are first cut into pieces that fit the cache, then each piece into leaves.
    """
    coarse, starts, _ = sort_into_leaves(rows, PIECE, PIECE)
    taken = take_rows(rows, coarse)
    pieces = [(taken[0:0], coarse, starts, starts)] * (len(starts) - 1)

    def task(piece: int) -> None:
        part = slice(starts[piece], starts[piece + 1])
        order, leaves, parents = sort_into_leaves(taken[part], *_sizes(rows.shape[1]))
        pieces[piece] = (take_rows(taken[part], order), coarse[part][order], leaves, parents)

    parallel_for(task, len(pieces))
    taken = np.concatenate([rows for rows, _, _, _ in pieces])
    order = np.concatenate([order for _, order, _, _ in pieces])
    leaves = _chained([leaves for _, _, leaves, _ in pieces])
    return order, taken, measure_boxes_of_tree(taken, leaves, _chained([parents for _, _, _, parents in pieces]))


def _sizes(width: int) -> tuple[int, int]:
    """Return how many points a leaf and a parent may have: boxes of many dimensions part less, so they are larger."""
    return (96, 1024) if width <= 4 else (512, 4096)


def _chained(starts: list[Ints]) -> Ints:
    """Join runs of starts, each of which begins at 0 and ends at its own length."""
    ends = np.cumsum([run[-1] for run in starts])
    shifted = [run[1:] + (end - run[-1]) for run, end in zip(starts, ends, strict=True)]
    return np.concatenate([np.zeros(1, np.int32), *shifted]).astype(np.int32)


@compile_loops
def sort_into_leaves(rows: Floats, leaf_size: int, parent_size: int) -> tuple[Ints, Ints, Ints]:
    """Return an order of the points, where each leaf begins in it, and at which leaf each parent begins.

    Leaves have at most `leaf_size` points, parents at most `parent_size`.
    """
    num_rows = rows.shape[0]
    order = np.arange(num_rows).astype(np.int32)
    spare, values = np.empty(num_rows, np.int32), np.empty(SAMPLE, np.float32)
    leaves, parents = np.empty(num_rows + 1, np.int32), np.empty(num_rows + 1, np.int32)
    num_leaves, num_parents, parent_end = 0, 0, 0
    waiting = np.empty(2 * DEEPEST, np.int64)  # ends of the nodes still to be cut: each begins where the last one ended
    waiting[0] = num_rows
    num_waiting, begin = 1, 0
    while num_waiting > 0:
        end = waiting[num_waiting - 1]
        if begin >= parent_end and end - begin <= parent_size:
            parents[num_parents] = num_leaves
            num_parents += 1
            parent_end = end
        if end - begin <= leaf_size:
            leaves[num_leaves] = begin
            num_leaves += 1
            num_waiting -= 1
            begin = end
        else:
            waiting[num_waiting] = cut(rows, order, begin, end, spare, values, num_waiting < DEEPEST)
            num_waiting += 1
    leaves[num_leaves] = num_rows
    parents[num_parents] = num_leaves
    return order, leaves[: num_leaves + 1], parents[: num_parents + 1]


@compile_loops
def cut(
    rows: Floats,
    order: Ints,
    begin: int,
    end: int,
    spare: Ints,
    values: Floats,
    by_value: bool,  # noqa: FBT001
) -> int:
    """Part the points at positions `[begin, end)` at the median of their widest dimension; return the cut."""
    dimension, value = choose_cut(rows, order, begin, end, values)
    middle = part_rows(rows, order, begin, end, spare, dimension, value) if by_value else begin
    return middle if begin < middle < end else (begin + end) // 2  # the latter for equal points


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


@compile_loops
def take_rows(rows: Floats, order: Ints) -> Floats:
    """Return the rows in that order."""
    taken = np.empty_like(rows)
    for position in range(np.uint64(rows.shape[0])):
        row = np.uint64(order[position])
        for d in range(np.uint64(rows.shape[1])):
            taken[position, d] = rows[row, d]
    return taken


@compile_loops
def measure_boxes_of_tree(rows: Floats, leaves: Ints, parents: Ints) -> KDTree:
    """Return the boxes of leaves and parents of rows that are already in order."""
    width = rows.shape[1]
    low, high = np.empty((leaves.shape[0] - 1, width), np.float32), np.empty((leaves.shape[0] - 1, width), np.float32)
    measure_boxes(rows, rows, leaves, low, high)
    outer_low = np.empty((parents.shape[0] - 1, width), np.float32)
    outer_high = np.empty((parents.shape[0] - 1, width), np.float32)
    measure_boxes(low, high, parents, outer_low, outer_high)
    return KDTree(Boxes(leaves, low, high), Boxes(parents, outer_low, outer_high))


@compile_loops
def measure_boxes(lows: Floats, highs: Floats, starts: Ints, low: Floats, high: Floats) -> None:
    """Write the extremes of every run of rows into `low` and `high`."""
    for box in range(starts.shape[0] - 1):
        for d in range(lows.shape[1]):
            smallest, largest = lows[starts[box], d], highs[starts[box], d]
            for row in range(starts[box] + 1, starts[box + 1]):
                smallest = min(smallest, lows[row, d])
                largest = max(largest, highs[row, d])
            low[box, d], high[box, d] = smallest, largest


def build_split_tree(rows: Floats, num_points: int) -> SplitTree:
    """Return a tree with cells for `num_points` points that are spread as the `rows`."""
    depth = min(DEEPEST_SPLITS, (num_points // POINTS_IN_CELL).bit_length())
    step = max(1, len(rows) // (SAMPLED_IN_CELL << depth))
    return cut_sample(padded(np.ascontiguousarray(rows[::step])), 1 << depth)


@compile_loops
def cut_sample(sample: Floats, num_cells: int) -> SplitTree:
    """Cut the sample at the median of its widest dimension, and each part again, level by level."""
    num_rows = sample.shape[0]
    order = np.arange(num_rows).astype(np.int32)
    spare, median_of = np.empty(num_rows, np.int32), np.empty(MEDIAN_OF, np.float32)
    dimensions, values = np.zeros(num_cells, np.uint64), np.zeros(num_cells, np.float32)
    starts, ends = np.zeros(2 * num_cells, np.int64), np.full(2 * num_cells, num_rows)
    for node in range(1, num_cells):
        begin, end = starts[node], ends[node]
        middle = begin
        if begin < end:
            dimensions[node], values[node] = choose_cut(sample, order, begin, end, median_of)
            middle = part_rows(sample, order, begin, end, spare, dimensions[node], values[node])
        starts[2 * node], ends[2 * node] = begin, middle
        starts[2 * node + 1], ends[2 * node + 1] = middle, end
    return SplitTree(dimensions, values)


@compile_loops
def sort_into_cells(rows: Floats, tree: SplitTree, dims: Dims) -> Cells:
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
        slot = np.uint64(starts[own])
        starts[own] += 1
        order[slot] = row
        for d in range(np.uint64(len(dims))):
            taken[slot, d] = rows[row, d]
    return Cells(order, taken, starts[: num_cells + 1])


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
