"""Exact nearest centroids of wide points, where boxes prune little: a matrix product leaves few candidates to measure.

`score(x, c) = |c|² / 2 - x·c` orders centroids by distance, but for rounding. Every centroid whose score lies within
twice the rounding of the smallest is measured as the definition says; nearly always there is just one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cce.compiled import compile_loops, parallel_for

if TYPE_CHECKING:
    from cce.clustering.distances import Floats, Ints

PAIRS_AT_ONCE = 1 << 20  # scores in one product: 4 MB
ROWS_IN_TASK = 64
RUN = 64  # scores whose smallest is remembered
ROUNDING = 2.0**-24


class Found(NamedTuple):
    """What the search says of every point."""

    nearest: Ints  # (n,)
    squares: Floats  # (n,) squared distance to it
    gaps: Floats  # (n,) lower bound on the distance to any other centroid


def wide_nearest(rows: Floats, centers: Floats) -> Found:
    """Return the nearest centroid of every row, both around their middle: scores near the origin round less."""
    num_rows, num_centers = len(rows), len(centers)
    found = Found(np.empty(num_rows, np.int32), np.empty(num_rows, np.float32), np.empty(num_rows, np.float32))
    middle = centers.mean(0, dtype=np.float64).astype(np.float32)
    columns = torch.from_numpy(centers - middle).t().contiguous()
    halves = columns.square().sum(0).div_(2)
    largest = float(halves.max() * 2) ** 0.5
    size = max(ROWS_IN_TASK, PAIRS_AT_ONCE // num_centers)
    buffer = torch.empty(min(size, num_rows), num_centers)
    for begin in range(0, num_rows, size):
        shifted = rows[begin : begin + size] - middle
        scores = buffer[: len(shifted)]
        torch.addmm(halves, torch.from_numpy(shifted), columns, alpha=-1, out=scores)
        _settle_all(scores.numpy(), shifted, rows[begin : begin + size], centers, largest, begin, found)
    return found


def _settle_all(
    scores: Floats, shifted: Floats, rows: Floats, centers: Floats, largest: float, begin: int, found: Found
) -> None:
    norms = np.sqrt(np.square(shifted, dtype=np.float64).sum(1))
    doubts = (2 * rows.shape[1] + 16) * ROUNDING * (norms + largest) ** 2

    def task(index: int) -> None:
        first, last = index * ROWS_IN_TASK, min((index + 1) * ROWS_IN_TASK, len(rows))
        settle(scores, norms, doubts, rows, centers, first, last, begin, found)

    parallel_for(task, -(-len(rows) // ROWS_IN_TASK))


@compile_loops
def settle(
    scores: Floats,
    norms: Floats,
    doubts: Floats,
    rows: Floats,
    centers: Floats,
    first: int,
    last: int,
    begin: int,
    found: Found,
) -> None:
    """Measure the candidates of the rows `[first, last)` of this piece, which begins at row `begin` of all."""
    bits = scores.view(np.int32)
    num_runs = (scores.shape[1] + RUN - 1) // RUN
    smallest = np.empty(num_runs, np.int32)
    for row in range(first, last):
        least = smallest_of_runs(bits, row, smallest)
        limit = np.float32(from_sortable(least) + 2 * doubts[row])
        best, winner, num_measured = np.float32(np.inf), 0, 0
        second = np.float32(np.inf)
        for run in range(num_runs):
            if from_sortable(smallest[run]) > limit:
                second = min(second, from_sortable(smallest[run]))
                continue
            for center in range(run * RUN, min((run + 1) * RUN, scores.shape[1])):
                if scores[row, center] > limit:
                    second = min(second, scores[row, center])
                    continue
                num_measured += 1
                square = measure(rows, row, centers, center)
                if square < best:
                    best, winner = square, center
        gap = max(0.0, 2 * (second - 2 * doubts[row]) + norms[row] ** 2)
        found.nearest[begin + row] = winner
        found.squares[begin + row] = best
        found.gaps[begin + row] = np.sqrt(gap) * (1 - 1e-6) if num_measured == 1 else 0.0


@compile_loops
def smallest_of_runs(bits: Ints, row: int, smallest: Ints) -> np.int32:
    """Write the smallest score of every run of a row, as sortable bits; return the smallest of all."""
    least = np.int32(0x7FFFFFFF)
    for run in range(smallest.shape[0]):
        run_least = np.int32(0x7FFFFFFF)
        for index in range(np.uint64(run * RUN), np.uint64(min((run + 1) * RUN, bits.shape[1]))):
            value = bits[row, index]
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
