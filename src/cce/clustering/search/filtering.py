"""Exact nearest centroids by filtering: a box of points at a time (Kanungo et al., 2002).

The centroid nearest to the middle of a box beats every other whose half of space, beyond the plane midway between the
two, the box does not reach. The centroids left for a node of the tree of cells are
thinned out again for each node below, and the few left for a cell are measured against all of its points, eight points
to a vector instruction. Lists keep the order of the centroids, so the first of equals is the one of the lowest index.

The test is loosened by `SLACK`, far above the rounding of float32, so that rounding never discards the true winner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cce.clustering.search.bounds import SLACK
from cce.clustering.search.distances import LARGEST_BITS, Dims, Floats, Ints
from cce.compiled import compile_loops

if TYPE_CHECKING:
    from cce.clustering.search.distances import Longs
    from cce.clustering.search.kd_tree import Cells

TINY = 1e-36  # for squares that underflow
HIGHEST = 6  # levels above the cells where thinning out begins: larger boxes would keep nearly all
CELLS_IN_NODE = 1 << HIGHEST
STEP = 2  # levels from one thinning out to the next


class Candidates(NamedTuple):
    """Centroids that may be the nearest of some point in a box: space for all of them."""

    ids: Ints  # (k,) ascending
    columns: Floats  # (width, k) their coordinates
    length: Ints  # (1,) how many there are


class Scratch(NamedTuple):
    """Room for what is known of one box, used again for every box."""

    point: Floats  # (width,) first the middle of the box, then the centroid nearest to it
    squares: Floats  # (k,) of each centroid
    kept: Ints  # (k,) slots of those that stay


class Best(NamedTuple):
    """The points of one cell, and the nearest centroid that each has found so far."""

    columns: Floats  # (width, capacity) their coordinates
    bits: Ints  # (capacity,) of its squared distance, as an integer
    winners: Ints  # (capacity,)


@compile_loops
def assign_cells(cells: Cells, first: int, last: int, nearest: Longs, centers: Floats, dims: Dims) -> None:
    """Write the index of the nearest of `centers`, `(width, k)`, for the points of some cells, where each came from.

    The cells are those from `first`, a multiple of `CELLS_IN_NODE`, to before `last`.
    """
    num_levels = HIGHEST // STEP + 1
    low, high = measure_nodes(cells.rows, cells.starts[first : last + 1], dims)
    lists, scratch = new_lists(centers, num_levels + 1, dims)
    best = new_best(np.max(cells.starts[first + 1 : last + 1] - cells.starts[first:last]), dims)
    for cell in range(last - first):
        begin, end = cells.starts[first + cell], cells.starts[first + cell + 1]
        for level in range(num_levels):
            above = HIGHEST - level * STEP
            node = max((last - first + cell) >> above, 1)
            if cell & ((1 << above) - 1) == 0 and low[node, 0] <= high[node, 0]:
                filter_candidates(
                    low[node], high[node], at_level(lists, level), at_level(lists, level + 1), scratch, dims
                )
        if end > begin:
            search_cell(cells.rows[begin:end], at_level(lists, num_levels), best, dims)
            for row in range(np.uint64(end - begin)):
                nearest[np.uint64(cells.order[np.uint64(begin) + row])] = best.winners[row]


@compile_loops
def new_lists(centers: Floats, num_lists: int, dims: Dims) -> tuple[Candidates, Scratch]:
    """Return a list of candidates for each level, the first with all `centers`, and scratch for any of them."""
    num_centers = centers.shape[1]
    ids, columns = np.empty((num_lists, num_centers), np.int32), np.empty((num_lists, *centers.shape), np.float32)
    counts = np.zeros((num_lists, 1), np.int32)
    ids[0], columns[0], counts[0] = np.arange(num_centers), centers, num_centers
    point, squares = np.empty(len(dims), np.float32), np.empty(num_centers, np.float32)
    return Candidates(ids, columns, counts), Scratch(point, squares, np.empty(num_centers, np.int32))


@compile_loops
def at_level(lists: Candidates, level: int) -> Candidates:
    """Return one list of candidates."""
    return Candidates(lists.ids[level], lists.columns[level], lists.length[level])


@compile_loops
def new_best(capacity: int, dims: Dims) -> Best:
    """Return space for the points of one cell."""
    return Best(np.empty((len(dims), capacity), np.float32), np.empty(capacity, np.int32), np.zeros(capacity, np.int32))


@compile_loops
def measure_nodes(rows: Floats, starts: Ints, dims: Dims) -> tuple[Floats, Floats]:
    """Return the lowest and highest corner of the rows below every node of the tree of these cells.

    Cell `i` is the node `num_cells + i`, as in `kd_tree.SplitTree`. A node without rows is inside out.
    """
    num_cells = starts.shape[0] - 1
    low = np.full((2 * num_cells, len(dims)), np.inf, np.float32)
    high = np.full((2 * num_cells, len(dims)), -np.inf, np.float32)
    for cell in range(num_cells):
        own = np.uint64(num_cells + cell)
        for row in range(np.uint64(starts[cell]), np.uint64(starts[cell + 1])):
            for d in range(np.uint64(len(dims))):
                value, lowest, highest = rows[row, d], low[own, d], high[own, d]
                low[own, d] = value if value < lowest else lowest
                high[own, d] = value if value > highest else highest
    for node in range(num_cells - 1, 0, -1):
        for d in range(len(dims)):
            low[node, d] = min(low[2 * node, d], low[2 * node + 1, d])
            high[node, d] = max(high[2 * node, d], high[2 * node + 1, d])
    return low, high


@compile_loops
def filter_candidates(
    low: Floats, high: Floats, candidates: Candidates, near: Candidates, scratch: Scratch, dims: Dims
) -> None:
    """Write those of the candidates that may be the nearest of some point in the box into `near`."""
    point = scratch.point
    for d in range(len(dims)):
        point[d] = (low[d] + high[d]) / 2
    chosen = nearest_to_middle(candidates, scratch, dims)
    farthest = np.float32(0)
    for d in range(len(dims)):
        point[d] = candidates.columns[d, chosen]
        farthest += max(high[d] - point[d], point[d] - low[d]) ** 2
    measure_leads(low, high, candidates, scratch, dims)
    limit, num_near = np.float32(farthest * SLACK + TINY), np.uint64(0)
    for index in range(np.uint64(candidates.length[0])):
        scratch.kept[num_near] = index
        num_near += np.uint64(scratch.squares[index] <= limit)
    near.length[0] = num_near
    for index in range(num_near):
        near.ids[index] = candidates.ids[np.uint64(scratch.kept[index])]
    for d in range(np.uint64(len(dims))):
        for index in range(num_near):
            near.columns[d, index] = candidates.columns[d, np.uint64(scratch.kept[index])]


@compile_loops
def nearest_to_middle(candidates: Candidates, scratch: Scratch, dims: Dims) -> np.uint64:
    """Return the slot of the candidate that is nearest to `scratch.point`."""
    smallest, count = np.int32(LARGEST_BITS), np.uint64(candidates.length[0])
    for index in range(count):
        total = np.float32(0)
        for d in range(np.uint64(len(dims))):
            difference = scratch.point[d] - candidates.columns[d, index]
            total += difference * difference
        scratch.squares[index] = total
    for index in range(count):
        smallest = min(smallest, np.float32(scratch.squares[index]).view(np.int32))
    square, chosen = np.int32(smallest).view(np.float32), np.uint64(0)
    while scratch.squares[chosen] != square:
        chosen += np.uint64(1)
    return chosen


@compile_loops
def measure_leads(low: Floats, high: Floats, candidates: Candidates, scratch: Scratch, dims: Dims) -> None:
    """Write how much nearer, in squares, `scratch.point` is than each candidate, in the corner best for the candidate.

    The difference of the two squares is linear across the box, so nowhere in the box is it less than in that corner.
    """
    for index in range(np.uint64(candidates.length[0])):
        own, other = np.float32(0), np.float32(0)
        for d in range(np.uint64(len(dims))):
            value = candidates.columns[d, index]
            center, left, right = scratch.point[d], low[d], high[d]  # read here: a choice of what to read is a branch
            corner = right if value > center else left
            own += (center - corner) * (center - corner)
            other += (value - corner) * (value - corner)
        scratch.squares[index] = (other - own) - (other + own) * np.float32(SLACK)


@compile_loops
def search_cell(rows: Floats, candidates: Candidates, best: Best, dims: Dims) -> None:
    """Find the nearest of the candidates of each row."""
    num_rows = np.uint64(rows.shape[0])
    for row in range(num_rows):
        for d in range(np.uint64(len(dims))):
            best.columns[d, row] = rows[row, d]
        best.bits[row] = LARGEST_BITS
    for index in range(np.uint64(candidates.length[0])):
        center = candidates.ids[index]
        for row in range(num_rows):
            total = np.float32(0)
            for d in range(np.uint64(len(dims))):
                difference = best.columns[d, row] - candidates.columns[d, index]
                total += difference * difference
            bits, known, winner = np.float32(total).view(np.int32), best.bits[row], best.winners[row]
            best.bits[row] = min(known, bits)
            best.winners[row] = winner + (center - winner) * np.int32(bits < known)  # a choice would be a slow store
