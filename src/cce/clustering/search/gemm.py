"""Exact nearest centroids of wide points by a matrix product that keeps only the smallest scores.

Beyond four dimensions boxes prune little. `score(x, c) = |c|² / 2 - x·c` orders centroids by distance, but for
rounding. The product is made sixteen points and six centroids at a time, in registers, and never written to memory: of
each point the two smallest scores are kept (`compiled.tiles`). If they are so close that rounding may have swapped
them, all centroids are measured as the definition says; nearly always they are not.

Scores are float32; points and distances are float32 or float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cce.clustering.search.cells import Found
from cce.compiled import compile_loops, memory, parallel_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.clustering.search.cells import Doubles, Floats, Rows

BLOCK, TILE, score_tile = memory.BLOCK, memory.TILE, memory.score_tile
ROUNDING = 2.0**-24
TINY = 1e-33  # absolute, for scores that underflow
BLOCKS_IN_TASK = 128
BLOCKS_AT_ONCE = 8  # blocks that share the centroids that are in the cache
SAMPLE = 4096  # points of whose mean scores are taken: near the origin they round less


class Points(NamedTuple):
    """Points, and what scores need of them."""

    rows: Rows  # (n, width)
    middle: Doubles  # (width,)
    blocks: Floats  # (num_blocks, width, 16) around the middle, filled up with zeros
    norms: Doubles  # (n,) distances to the middle


class Centers(NamedTuple):
    """Centroids, and what scores need of them."""

    rows: Rows  # (k, width)
    columns: Rows  # (width, k)
    tiles: Floats  # (num_tiles, width, 6) around the middle, filled up with zeros
    halves: Floats  # (num_tiles * 6,) half of the squared lengths; infinite where there is no centroid
    longest: float


def prepare_points(rows: Rows) -> Points:
    """Return the points in blocks."""
    middle = rows[:: max(1, len(rows) // SAMPLE)].mean(0, dtype=np.float64)
    num_blocks = -(-len(rows) // BLOCK)
    blocks, norms = np.zeros((num_blocks, rows.shape[1], BLOCK), np.float32), np.empty(len(rows))
    points = Points(rows, middle, blocks, norms)
    _in_tasks(lambda first, last: pack_points(points, first, last), num_blocks)
    return points


def prepare_centers(rows: Rows, middle: Doubles) -> Centers:
    """Return the centroids in tiles."""
    num_tiles = -(-len(rows) // TILE)
    shifted = np.zeros((num_tiles * TILE, rows.shape[1]), np.float32)
    shifted[: len(rows)] = rows - middle
    halves = np.full(len(shifted), np.inf, np.float32)
    halves[: len(rows)] = np.square(shifted[: len(rows)], dtype=np.float64).sum(1) / 2
    tiles = np.ascontiguousarray(shifted.reshape(num_tiles, TILE, -1).transpose(0, 2, 1))
    longest = float(2 * halves[: len(rows)].max()) ** 0.5
    return Centers(rows, np.ascontiguousarray(rows.T), tiles, halves, longest)


def gemm_nearest(points: Points, centroids: Rows) -> Found:
    """Return the nearest centroid of every point."""
    found = Found(np.empty(len(points.rows), np.int32), np.empty(len(points.rows), points.rows.dtype))
    centers = prepare_centers(centroids, points.middle)
    _in_tasks(lambda first, last: search_blocks(points, centers, first, last, found), len(points.blocks))
    return found


def _in_tasks(run: Callable[[int, int], None], num_blocks: int) -> None:
    """Run `run(first, last)` for all blocks, some at a time, on several threads."""

    def task(index: int) -> None:
        run(index * BLOCKS_IN_TASK, min((index + 1) * BLOCKS_IN_TASK, num_blocks))

    parallel_for(task, -(-num_blocks // BLOCKS_IN_TASK))


@compile_loops
def pack_points(points: Points, first: int, last: int) -> None:
    """Fill the blocks `[first, last)` and the norms of their points."""
    num_rows, width = points.rows.shape
    for row in range(np.uint64(first * BLOCK), np.uint64(min(last * BLOCK, num_rows))):
        block, lane = row // np.uint64(BLOCK), row % np.uint64(BLOCK)
        total = 0.0
        for d in range(np.uint64(width)):
            shifted = points.rows[row, d] - points.middle[d]
            points.blocks[block, d, lane] = shifted
            total += shifted * shifted
        points.norms[row] = np.sqrt(total)


@compile_loops
def search_blocks(points: Points, centers: Centers, first: int, last: int, found: Found) -> None:
    """Find the nearest centroids of the points of the blocks `[first, last)`."""
    width, num_tiles = points.rows.shape[1], centers.tiles.shape[0]
    states = np.empty((BLOCKS_AT_ONCE, 3, BLOCK), np.float32)
    squares = np.empty(centers.rows.shape[0], points.rows.dtype)
    blocks, tiles = np.int64(points.blocks.ctypes.data), np.int64(centers.tiles.ctypes.data)
    halves, state = np.int64(centers.halves.ctypes.data), np.int64(states.ctypes.data)
    for begin in range(first, last, BLOCKS_AT_ONCE):
        end = min(begin + BLOCKS_AT_ONCE, last)
        states[:] = np.inf
        for tile in range(num_tiles):
            for block in range(begin, end):
                score_tile(
                    blocks + block * width * BLOCK * 4,
                    tiles + tile * width * TILE * 4,
                    halves + tile * TILE * 4,
                    width,
                    state + (block - begin) * 3 * BLOCK * 4,
                    tile * TILE,
                )
        for block in range(begin, end):
            settle(points, centers, block, states[block - begin], squares, found)


@compile_loops
def settle(points: Points, centers: Centers, block: int, state: Floats, squares: Rows, found: Found) -> None:
    """Measure the winners of a block; measure every centroid for points whose winner may be due to rounding."""
    num_rows, width = points.rows.shape
    first, winners = np.uint64(block * BLOCK), state[2].view(np.int32)
    scale = (2 * width + 18) * ROUNDING
    for row in range(first, np.uint64(min((block + 1) * BLOCK, num_rows))):
        lane = row - first
        error = scale * (points.norms[row] + centers.longest) ** 2 + TINY
        if not np.float64(state[1, lane]) - np.float64(state[0, lane]) > 2 * error:
            winners[lane] = measure_each(points.rows, row, centers.columns, squares)
        winner, total = np.uint64(winners[lane]), points.rows.dtype.type(0)
        for d in range(np.uint64(width)):  # the definition, in its order
            difference = points.rows[row, d] - centers.rows[winner, d]
            total += difference * difference
        found.nearest[row] = winner
        found.squares[row] = total


@compile_loops
def measure_each(rows: Rows, row: int, columns: Rows, squares: Rows) -> np.int32:
    """Return the nearest centroid of a row, each of which is measured; `squares` has space for their distances."""
    count = np.uint64(columns.shape[1])
    squares[:] = 0
    for d in range(np.uint64(rows.shape[1])):
        value = rows[row, d]
        for index in range(count):
            difference = value - columns[d, index]
            squares[index] += difference * difference
    return np.int32(squares.argmin())
