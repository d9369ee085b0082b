"""Exact nearest centroids of wide points by a matrix product (GEMM), which leaves few candidates to measure.

Beyond eight dimensions boxes prune little. `score(x, c) = |c|² / 2 - x·c` orders centroids by distance, but for
rounding. Every centroid whose score lies within twice the rounding of the smallest is measured as the definition says;
nearly always there is just one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cce.compiled import compile_loops, parallel_for

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from cce.clustering.search.distances import Floats, Ints

    Doubles = npt.NDArray[np.float64]

PAIRS_AT_ONCE = 1 << 19  # scores in one product: 2 MB, which stay in the cache
ROWS_AT_ONCE = 1 << 16  # rows that are shifted at once
RUN = 64  # scores whose smallest is remembered
ROUNDING = 2.0**-24
TINY = 1e-33  # absolute, for scores that underflow


class Found(NamedTuple):
    """What the search says of every point."""

    nearest: Ints  # (n,)
    squares: Floats  # (n,) squared distance to it
    lower: Floats  # (n,) lower bound on the distance to any other centroid


def gemm_nearest(rows: Floats, centers: Floats) -> Found:
    """Return the nearest centroid of every row, both around their middle: scores near the origin round less."""
    num_rows = len(rows)
    found = Found(np.empty(num_rows, np.int32), np.empty(num_rows, np.float32), np.empty(num_rows, np.float32))
    middle = centers.mean(0, dtype=np.float64).astype(np.float32)
    columns = torch.zeros(rows.shape[1], -(-len(centers) // RUN) * RUN)  # whole runs
    columns[:, : len(centers)] = torch.from_numpy(centers - middle).t()
    for begin in range(0, num_rows, ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        here = Found(found.nearest[part], found.squares[part], found.lower[part])
        _search_part(rows[part], rows[part] - middle, centers, columns, here)
    return found


def _search_part(rows: Floats, shifted: Floats, centers: Floats, columns: Tensor, found: Found) -> None:
    """Score as many rows at a time as the cache holds, and settle them before the next ones come."""
    halves = columns.square().sum(0).div_(2)
    largest = float(halves.max() * 2) ** 0.5
    halves[len(centers) :] = torch.inf
    norms = np.sqrt(np.square(shifted, dtype=np.float64).sum(1))
    errors = (2 * rows.shape[1] + 16) * ROUNDING * (norms + largest) ** 2 + TINY
    size = max(64, PAIRS_AT_ONCE // len(halves))
    buffer = torch.empty(min(size, len(rows)), len(halves))
    points, scores = torch.from_numpy(shifted), buffer.numpy()
    for begin in range(0, len(rows), size):
        end = min(begin + size, len(rows))
        torch.addmm(halves, points[begin:end], columns, alpha=-1, out=buffer[: end - begin])
        _settle_in_threads(scores, Piece(begin, end), norms, errors, rows, centers, found)


class Piece(NamedTuple):
    """The rows `[begin, end)`, whose scores stand from the first row of the buffer on."""

    begin: int
    end: int


def _settle_in_threads(
    scores: Floats, piece: Piece, norms: Doubles, errors: Doubles, rows: Floats, centers: Floats, found: Found
) -> None:
    num_tasks = torch.get_num_threads()
    share = -(-(piece.end - piece.begin) // num_tasks)

    def task(index: int) -> None:
        first = min(piece.begin + index * share, piece.end)
        settle(scores, piece.begin, norms, errors, rows, centers, first, min(first + share, piece.end), found)

    parallel_for(task, num_tasks)


@compile_loops
def settle(
    scores: Floats,
    begin: int,
    norms: Doubles,
    errors: Doubles,
    rows: Floats,
    centers: Floats,
    first: int,
    last: int,
    found: Found,
) -> None:
    """Measure the candidates of the rows `[first, last)`; the scores begin at row `begin`."""
    bits = scores.view(np.int32)
    num_runs = scores.shape[1] // RUN
    smallest = np.empty(num_runs, np.int32)
    for row in range(first, last):
        least = smallest_of_runs(bits, row - begin, smallest)
        limit = np.float32(from_sortable(least) + 2 * errors[row])
        best, winner, num_measured = np.float32(np.inf), 0, 0
        second = np.float32(np.inf)
        for run in range(num_runs):
            if from_sortable(smallest[run]) > limit:
                second = min(second, from_sortable(smallest[run]))
                continue
            for center in range(run * RUN, (run + 1) * RUN):
                score = scores[row - begin, center]
                if score > limit:
                    second = min(second, score)
                    continue
                num_measured += 1
                square = measure(rows, row, centers, center)
                if square < best:
                    best, winner = square, center
        bound = max(0.0, 2 * (second - 2 * errors[row]) + norms[row] ** 2)
        found.nearest[row] = winner
        found.squares[row] = best
        found.lower[row] = np.sqrt(bound) * (1 - 1e-6) if num_measured == 1 else 0.0


@compile_loops
def smallest_of_runs(bits: Ints, row: int, smallest: Ints) -> np.int32:
    """Write the smallest score of every run of a row, as sortable bits; return the smallest of all."""
    length = np.uint64(bits.shape[1] // smallest.shape[0])  # RUN, but unknown to the compiler, which would unroll it
    least = np.int32(0x7FFFFFFF)
    for run in range(smallest.shape[0]):
        run_least = np.int32(0x7FFFFFFF)
        for index in range(length):
            value = bits[np.uint64(row), np.uint64(run) * length + index]
            run_least = min(run_least, np.int32(value ^ ((value >> 31) & np.int32(0x7FFFFFFF))))
        smallest[run] = run_least
        least = min(least, run_least)
    return least


@compile_loops
def from_sortable(value: np.int32) -> np.float32:
    """Return the float whose bits were made sortable: those of negative floats are turned around."""
    return np.int32(value ^ ((value >> 31) & np.int32(0x7FFFFFFF))).view(np.float32)


@compile_loops
def measure(rows: Floats, row: int, centers: Floats, center: int) -> np.float32:
    """Return the squared distance of a row to a centroid: the definition, in its order."""
    total = np.float32(0)
    for d in range(np.uint64(rows.shape[1])):
        difference = rows[row, d] - centers[center, d]
        total += difference * difference
    return total


@compile_loops
def measure_all(rows: Floats, centers: Floats, nearest: Ints, squares: Floats) -> None:
    """Write the squared distance of every row to its centroid into `squares`."""
    for row in range(rows.shape[0]):
        squares[row] = measure(rows, row, centers, nearest[row])
