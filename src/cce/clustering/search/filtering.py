"""Exact nearest centroids by filtering: a box of points at a time (Kanungo et al., 2002).

The centroid nearest to the middle of a box beats every other whose half of space, beyond the plane midway between the
two, the box does not reach. The centroids left for a node of the tree of cells are thinned out again for each node
below, and the few left for a cell are measured against all of its points. Lists keep the order of the centroids, so the
first of equals is the one of the lowest index.

The test is loosened by `SLACK`, far above the rounding of float32, so that rounding never discards the true winner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cce.clustering.search.cells import WIDTH, Cells, Floats, Found, Ints
from cce.compiled import compile_loops, memory

BLOCK, TILE, measure_tile = memory.BLOCK, memory.TILE, memory.measure_tile
SLACK = 1e-5  # relative; float32 distances of up to 32 dimensions are off by less than 2e-6
TINY = 1e-36  # for squares that underflow
HIGHEST = 6  # levels above the cells where thinning out begins: larger boxes would keep nearly all
CELLS_IN_NODE = 1 << HIGHEST
STEP = 2  # levels from one thinning out to the next


class Candidates(NamedTuple):
    """Centroids that may be the nearest of some point in a box: space for all of them."""

    ids: Ints  # (k,) ascending
    columns: Floats  # (4, k) their coordinates
    length: Ints  # (1,) how many there are


class Scratch(NamedTuple):
    """Space for what is known of one box, used again for every box."""

    point: Floats  # (4,) first the middle of the box, then the centroid nearest to it
    squares: Floats  # (k,) of each centroid
    kept: Ints  # (k,) slots of those that stay
    tiles: Floats  # (k / 6, 4, 6) the centroids that are measured
    points: Floats  # (4, 16) the points that they are measured against
    state: Floats  # (3, 16) what these have found: see `compiled.tiles`


@compile_loops
def assign_cells(cells: Cells, first: int, last: int, centers: Floats, found: Found) -> None:
    """Find the nearest of `centers`, `(4, k)`, for the points of some cells.

    The cells are those from `first`, a multiple of `CELLS_IN_NODE`, to before `last`.
    """
    num_levels = HIGHEST // STEP + 1
    low, high = measure_nodes(cells.rows, cells.starts[first : last + 1])
    lists, scratch = new_lists(centers, num_levels + 1)
    for cell in range(last - first):
        begin, end = cells.starts[first + cell], cells.starts[first + cell + 1]
        for level in range(num_levels):
            above = HIGHEST - level * STEP
            node = max((last - first + cell) >> above, 1)
            if cell & ((1 << above) - 1) == 0 and low[node, 0] <= high[node, 0]:
                filter_candidates(low[node], high[node], at_level(lists, level), at_level(lists, level + 1), scratch)
        if end > begin:
            search_cell(cells.rows, begin, end, at_level(lists, num_levels), scratch, found)


@compile_loops
def new_lists(centers: Floats, num_lists: int) -> tuple[Candidates, Scratch]:
    """Return a list of candidates for each level, the first with all `centers`, and scratch for any of them."""
    num_centers = centers.shape[1]
    ids, columns = np.empty((num_lists, num_centers), np.int32), np.empty((num_lists, *centers.shape), np.float32)
    counts = np.zeros((num_lists, 1), np.int32)
    ids[0], columns[0], counts[0] = np.arange(num_centers), centers, num_centers
    scratch = Scratch(
        np.empty(WIDTH, np.float32),
        np.empty(num_centers, np.float32),
        np.empty(num_centers, np.int32),
        np.empty(((num_centers + TILE - 1) // TILE, WIDTH, TILE), np.float32),
        np.zeros((WIDTH, BLOCK), np.float32),
        np.empty((3, BLOCK), np.float32),
    )
    return Candidates(ids, columns, counts), scratch


@compile_loops
def at_level(lists: Candidates, level: int) -> Candidates:
    """Return one list of candidates."""
    return Candidates(lists.ids[level], lists.columns[level], lists.length[level])


@compile_loops
def measure_nodes(rows: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """Return the lowest and highest corner of the rows below every node of the tree of these cells.

    Cell `i` is the node `num_cells + i`, as in `cells.SplitTree`. A node without rows is inside out.
    """
    num_cells = starts.shape[0] - 1
    low = np.full((2 * num_cells, WIDTH), np.inf, np.float32)
    high = np.full((2 * num_cells, WIDTH), -np.inf, np.float32)
    for cell in range(num_cells):
        own = np.uint64(num_cells + cell)
        for row in range(np.uint64(starts[cell]), np.uint64(starts[cell + 1])):
            for d in range(np.uint64(WIDTH)):
                value, lowest, highest = rows[row, d], low[own, d], high[own, d]
                low[own, d] = value if value < lowest else lowest
                high[own, d] = value if value > highest else highest
    for node in range(num_cells - 1, 0, -1):
        for d in range(WIDTH):
            low[node, d] = min(low[2 * node, d], low[2 * node + 1, d])
            high[node, d] = max(high[2 * node, d], high[2 * node + 1, d])
    return low, high


@compile_loops
def filter_candidates(low: Floats, high: Floats, candidates: Candidates, near: Candidates, scratch: Scratch) -> None:
    """Write those of the candidates that may be the nearest of some point in the box into `near`."""
    point = scratch.point
    for d in range(WIDTH):
        point[d] = (low[d] + high[d]) / 2
    chosen = nearest_to_middle(candidates, scratch)
    farthest = np.float32(0)
    for d in range(WIDTH):
        point[d] = candidates.columns[d, chosen]
        farthest += max(high[d] - point[d], point[d] - low[d]) ** 2
    measure_leads(low, high, candidates, scratch)
    limit, num_near = np.float32(farthest * SLACK + TINY), np.uint64(0)
    for index in range(np.uint64(candidates.length[0])):
        scratch.kept[num_near] = index
        num_near += np.uint64(scratch.squares[index] <= limit)
    near.length[0] = num_near
    for index in range(num_near):
        near.ids[index] = candidates.ids[np.uint64(scratch.kept[index])]
    for d in range(np.uint64(WIDTH)):
        for index in range(num_near):
            near.columns[d, index] = candidates.columns[d, np.uint64(scratch.kept[index])]


@compile_loops
def nearest_to_middle(candidates: Candidates, scratch: Scratch) -> np.uint64:
    """Return the slot of the candidate that is nearest to `scratch.point`.

    Squares are compared as integers, which have the same order, and of which a loop finds the smallest lane by lane.
    """
    smallest, count = np.int32(0x7FFFFFFF), np.uint64(candidates.length[0])
    for index in range(count):
        total = np.float32(0)
        for d in range(np.uint64(WIDTH)):
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
def measure_leads(low: Floats, high: Floats, candidates: Candidates, scratch: Scratch) -> None:
    """Write how much nearer, in squares, `scratch.point` is than each candidate, in the corner best for the candidate.

    The difference of the two squares is linear across the box, so nowhere in the box is it less than in that corner.
    """
    for index in range(np.uint64(candidates.length[0])):
        own, other = np.float32(0), np.float32(0)
        for d in range(np.uint64(WIDTH)):
            value = candidates.columns[d, index]
            center, left, right = scratch.point[d], low[d], high[d]  # read here: a choice of what to read is a branch
            corner = right if value > center else left
            own += (center - corner) * (center - corner)
            other += (value - corner) * (value - corner)
        scratch.squares[index] = (other - own) - (other + own) * np.float32(SLACK)


@compile_loops
def search_cell(rows: Floats, begin: int, end: int, candidates: Candidates, scratch: Scratch, found: Found) -> None:
    """Find the nearest of the candidates for the rows `[begin, end)`."""
    num_tiles = pack_tiles(candidates, scratch.tiles)
    points, state, tiles = scratch.points, scratch.state, np.int64(scratch.tiles.ctypes.data)
    winners = state[2].view(np.int32)
    for first in range(np.uint64(begin), np.uint64(end), np.uint64(BLOCK)):
        num_rows = min(np.uint64(end) - first, np.uint64(BLOCK))
        for row in range(num_rows):
            for d in range(np.uint64(WIDTH)):
                points[d, row] = rows[first + row, d]
        state[:] = np.inf
        for tile in range(num_tiles):
            address = tiles + tile * WIDTH * TILE * 4
            measure_tile(np.int64(points.ctypes.data), address, WIDTH, np.int64(state.ctypes.data), tile * TILE)
        for row in range(num_rows):
            found.nearest[first + row] = candidates.ids[np.uint64(winners[row])]
            found.squares[first + row] = state[0, row]


@compile_loops
def pack_tiles(candidates: Candidates, tiles: Floats) -> int:
    """Write the candidates into tiles, the last of which is filled up with the last candidate; return how many."""
    count = candidates.length[0]
    num_tiles = (count + TILE - 1) // TILE
    for tile in range(np.uint64(num_tiles)):
        for lane in range(np.uint64(TILE)):
            index = min(tile * np.uint64(TILE) + lane, np.uint64(count - 1))
            for d in range(np.uint64(WIDTH)):
                tiles[tile, d, lane] = candidates.columns[d, index]
    return int(num_tiles)
