"""k-means in loops that numba compiles: exact searches, sums in a fixed order, the same bits on any threads.

Points of up to four dimensions lie in the cells of a k-d tree and are filtered a box at a time (`search.filtering`).
Wider points, and those of float64, are scored by a matrix product (`search.gemm`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cce import compiled
from cce.clustering.backends import Assigned, Backend
from cce.clustering.search import filtering, gemm
from cce.clustering.search.cells import (
    WIDTH,
    Doubles,
    Floats,
    Found,
    Ints,
    Rows,
    build_split_tree,
    padded,
    sort_into_cells,
)
from cce.compiled import compile_loops, parallel_for

WIDEST = 4096
LARGEST_BLOCK = 1 << 20  # points sorted together: more make smaller boxes, but take memory
GEMM_BLOCK = 1 << 16  # points searched together: what is found stays in the cache
CELLS_IN_TASK = 4 * filtering.CELLS_IN_NODE
ROWS_IN_PART = 1 << 16  # points summed in one task; fixed, so that sums do not depend on the number of threads
LARGEST_SUMS = 1 << 23  # values in the partial sums of all tasks: 64 MB


class CellSearch:
    """The nearest centroids of CPU points of few dimensions, which it holds in the order of their cells."""

    def __init__(self, rows: Floats) -> None:
        rows = padded(rows)
        self.cells = sort_into_cells(rows, build_split_tree(rows, len(rows)))
        self.order, self.rows, self.found = self.cells.order, self.cells.rows, _new_found(rows)

    def find(self, centroids: Floats) -> Found:
        """Search some cells at a time."""
        columns, num_cells = np.ascontiguousarray(padded(centroids).T), len(self.cells.starts) - 1

        def task(index: int) -> None:
            last = min((index + 1) * CELLS_IN_TASK, num_cells)
            filtering.assign_cells(self.cells, index * CELLS_IN_TASK, last, columns, self.found)

        parallel_for(task, -(-num_cells // CELLS_IN_TASK))
        return self.found


class ScoreSearch:
    """The nearest centroids of wide CPU points."""

    order = slice(None)

    def __init__(self, rows: Rows) -> None:
        self.rows, self.found = rows, _new_found(rows)

    def find(self, centroids: Rows) -> Found:
        """Score all points."""
        gemm.gemm_nearest(self.rows, gemm.prepare_centers(centroids), self.found)
        return self.found


def _new_found(rows: Rows) -> Found:
    return Found(np.empty(len(rows), np.int32), np.empty(len(rows), rows.dtype))


def _search_of(points: Tensor) -> tuple[type[CellSearch | ScoreSearch], int]:
    """The search that is best for points of this width, and how many points to give it at a time."""
    if points.shape[1] <= WIDTH and points.dtype == torch.float32:
        return CellSearch, LARGEST_BLOCK
    return ScoreSearch, GEMM_BLOCK


class NativeLloyd:
    """Lloyd's step for CPU points, in the order in which they are searched."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.search = _search_of(points)[0](points.numpy())
        self.points = torch.from_numpy(self.search.rows)[:, : points.shape[1]]
        self.weights = points.new_ones(1).expand(len(points)) if weights is None else weights[self.search.order]

    def assign(self, centroids: Tensor) -> Assigned:
        found = self.search.find(centroids.numpy())
        return sum_clusters(self.points, self.weights, found, centroids.shape[0])


def sum_clusters(points: Tensor, weights: Tensor, found: Found, n_clusters: int) -> Assigned:
    """Sum the points of each cluster, part by part, and the parts in their order."""
    mass = (weights if weights.stride(0) else weights[:1]).numpy()  # one for all
    rows, nearest, squares = points.numpy(), found.nearest, found.squares
    num_rows, width = rows.shape
    num_parts = min(-(-num_rows // ROWS_IN_PART), max(1, LARGEST_SUMS // (n_clusters * (width + 1))))
    bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]
    sums = np.zeros((num_parts, n_clusters, width + 1), np.float64)  # the last column holds the weights
    inertias = np.zeros(num_parts, np.float64)

    def task(part: int) -> None:
        inertias[part] = sum_rows(rows, mass, nearest, squares, bounds[part], bounds[part + 1], sums[part])

    parallel_for(task, num_parts)
    for part in range(1, num_parts):
        sums[0] += sums[part]
    whole = torch.from_numpy(sums[0])
    inertia = float(inertias.sum())
    return Assigned(whole[:, :-1], whole[:, -1], torch.from_numpy(nearest), torch.from_numpy(squares), inertia)


@compile_loops
def sum_rows(rows: Rows, weights: Rows, nearest: Ints, squares: Rows, begin: int, end: int, sums: Doubles) -> float:
    """Add the rows `[begin, end)` and their weights to the sums of their clusters; return their inertia."""
    width, inertia, last = sums.shape[1] - 1, 0.0, np.uint64(len(weights) - 1)
    for row in range(np.uint64(begin), np.uint64(end)):
        cluster = np.uint64(nearest[row])
        weight = np.float64(weights[row if row < last else last])
        inertia += weight * squares[row]
        for d in range(width):
            sums[cluster, d] += weight * rows[row, d]
        sums[cluster, width] += weight
    return inertia


def native_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids, block by block."""
    rows, centers, nearest = points.numpy(), centroids.numpy(), np.empty(len(points), np.int64)
    kind, largest = _search_of(points)
    num_blocks = -(-len(rows) // largest)
    if num_blocks > 1:  # as many for every thread
        num_blocks = -(-num_blocks // torch.get_num_threads()) * torch.get_num_threads()
    size = -(-len(rows) // num_blocks)

    def task(index: int) -> None:
        part = slice(index * size, min((index + 1) * size, len(rows)))
        search = kind(rows[part])
        nearest[part][search.order] = search.find(centers).nearest

    parallel_for(task, num_blocks)
    return torch.from_numpy(nearest)


def _why_not(points: Tensor) -> str:
    rule = f"needs compiled loops and CPU points of width <= {WIDEST}"
    if not compiled.available:
        return f"{rule}, but {compiled.why_plain}"
    if points.device.type != "cpu" or points.shape[1] > WIDEST:
        return f"{rule}, got {points.device} points of width {points.shape[1]}"
    return ""


BACKEND = Backend("native", nearest=native_nearest, lloyd=NativeLloyd, why_not=_why_not)
