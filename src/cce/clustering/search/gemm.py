"""Exact nearest centroids of wide points by a matrix product that keeps only the smallest scores.

Beyond four dimensions boxes prune little. `score(x, c) = |c|² / 2 - x·c` orders centroids by distance, except for
rounding. The product is made sixteen points and six centroids at a time, in registers, and never written to memory: of
each point the smallest scores of the two best tiles of six are kept (`compiled.tiles`), and the six of the best tile
are measured as the definition says. If the two scores are so close that rounding may have swapped them, all centroids
are measured; nearly always they are not.

Scores are float32; points and distances are float32 or float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cce.clustering.search.cells import Floats, Found, Rows
from cce.compiled import compile_loops, memory, parallel_for

BLOCK, TILE, LANES = memory.BLOCK, memory.TILE, memory.LANES
score_tile, nearest_of = memory.score_tile, memory.nearest_of
ROUNDING = 2.0**-24
TINY = 1e-33  # absolute, for scores that underflow
ROWS_IN_TASK = 2048
BLOCKS_AT_ONCE = 8  # blocks that share the centroids that are in the cache


class Centers(NamedTuple):
    """Centroids, and what scores need of them."""

    middle: Rows  # (width,) near the origin scores round less
    tiles: Floats  # (num_tiles, width, 6) around the middle, filled up with zeros
    halves: Floats  # (num_tiles * 6,) half of the squared lengths; infinite where there is no centroid
    lanes: Rows  # (num_tiles, width, 8) the centroids of each tile, filled up with infinity
    longest: float


def prepare_centers(rows: Rows) -> Centers:
    """Return the centroids in tiles."""
    middle = rows.mean(0, dtype=np.float64).astype(np.float32).astype(rows.dtype)
    num_tiles, width = -(-len(rows) // TILE), rows.shape[1]
    shifted = np.zeros((num_tiles * TILE, width), np.float32)
    shifted[: len(rows)] = rows - middle
    halves = np.full(len(shifted), np.inf, np.float32)
    halves[: len(rows)] = np.square(shifted[: len(rows)], dtype=np.float64).sum(1) / 2
    tiles = np.ascontiguousarray(shifted.reshape(num_tiles, TILE, width).transpose(0, 2, 1))
    whole = np.full((num_tiles * TILE, width), np.inf, rows.dtype)
    whole[: len(rows)] = rows
    lanes = np.full((num_tiles, width, LANES), np.inf, rows.dtype)
    lanes[:, :, :TILE] = whole.reshape(num_tiles, TILE, width).transpose(0, 2, 1)
    return Centers(middle, tiles, halves, lanes, float(2 * halves[: len(rows)].max()) ** 0.5)


def gemm_nearest(rows: Rows, centers: Centers, found: Found) -> None:
    """Find the nearest centroid of every point, some points at a time, on several threads."""

    def task(index: int) -> None:
        search_rows(rows, centers, index * ROWS_IN_TASK, min((index + 1) * ROWS_IN_TASK, len(rows)), found)

    parallel_for(task, -(-len(rows) // ROWS_IN_TASK))


@compile_loops
def search_rows(rows: Rows, centers: Centers, first: int, last: int, found: Found) -> None:
    """Find the nearest centroids of the points `[first, last)`."""
    width, num_tiles = rows.shape[1], centers.tiles.shape[0]
    points, norms = np.empty((BLOCKS_AT_ONCE, width, BLOCK), np.float32), np.empty((BLOCKS_AT_ONCE, BLOCK), np.float32)
    states = np.empty((BLOCKS_AT_ONCE, 3, BLOCK), np.float32)
    block, tiles = np.int64(points.ctypes.data), np.int64(centers.tiles.ctypes.data)
    halves, state = np.int64(centers.halves.ctypes.data), np.int64(states.ctypes.data)
    for begin in range(first, last, BLOCKS_AT_ONCE * BLOCK):
        end = min(begin + BLOCKS_AT_ONCE * BLOCK, last)
        num_blocks = (end - begin + BLOCK - 1) // BLOCK
        pack_rows(rows, centers.middle, begin, end, points, norms)
        states[:] = np.inf
        for tile in range(num_tiles):
            for index in range(num_blocks):
                score_tile(
                    block + index * width * BLOCK * 4,
                    tiles + tile * width * TILE * 4,
                    halves + tile * TILE * 4,
                    width,
                    state + index * 3 * BLOCK * 4,
                    tile,
                )
        settle(rows, centers, begin, end, norms, states, found)


@compile_loops
def pack_rows(rows: Rows, middle: Rows, begin: int, end: int, points: Floats, norms: Floats) -> None:
    """Fill blocks with the points `[begin, end)` around the middle, and their distances to it."""
    for row in range(np.uint64(end - begin)):
        block, lane, total = row // np.uint64(BLOCK), row % np.uint64(BLOCK), np.float32(0)
        for d in range(np.uint64(rows.shape[1])):
            shifted = np.float32(rows[np.uint64(begin) + row, d] - middle[d])
            points[block, d, lane] = shifted
            total += shifted * shifted
        norms[block, lane] = np.sqrt(total)


@compile_loops
def settle(rows: Rows, centers: Centers, begin: int, end: int, norms: Floats, states: Floats, found: Found) -> None:
    """Measure the best tile for each of the points `[begin, end)`; all tiles, if rounding may have chosen."""
    width, num_tiles, size = rows.shape[1], centers.tiles.shape[0], rows.itemsize
    scale, longest, kind = (2 * width + 18) * ROUNDING, centers.longest, rows.dtype.type(0)
    points, lanes, square = np.int64(rows.ctypes.data), np.int64(centers.lanes.ctypes.data), np.empty(1, rows.dtype)
    into = np.int64(square.ctypes.data)
    for row in range(begin, end):
        block, lane, point = (row - begin) // BLOCK, (row - begin) % BLOCK, points + row * width * size
        state = states[block]
        error = scale * (np.float64(norms[block, lane]) + longest) ** 2 + TINY
        tile = np.int64(state[2].view(np.int32)[lane])
        if np.float64(state[1, lane]) - np.float64(state[0, lane]) > 2 * error:
            nearest = tile * TILE + nearest_of(point, lanes + tile * width * LANES * size, width, into, kind)
            least = square[0]
        else:
            nearest, least = 0, np.inf
            for each in range(num_tiles):
                own = nearest_of(point, lanes + each * width * LANES * size, width, into, kind)
                if square[0] < least:
                    nearest, least = each * TILE + own, square[0]
        found.nearest[row] = nearest
        found.squares[row] = least
