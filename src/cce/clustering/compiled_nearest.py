"""Nearest centroids without a guess, in compiled loops: from a few of the centroids to all of them, level by level.

The nearest of every 256th centroid guides the search among every 16th, and that one the search among all. Each level is
exact in itself, so the last one is the answer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cce.clustering.distances import Floats, packed, padded
from cce.clustering.neighbours import Centers, Ints, State, search, sort_by_cluster
from cce.compiled import parallel_for

BLOCK = 1 << 16  # points in one task: their rows and lists stay in the cache
STEP = 16  # each level has this many times the centroids of the one before
SMALLEST_LEVEL = 16


def compiled_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids."""
    nearest, _ = search_all(points.numpy(), padded(centroids.numpy()))
    return torch.from_numpy(nearest).long()


def search_all(points: Floats, rows: Floats) -> tuple[Ints, Floats]:
    """Return the nearest of the centroids `rows`, already padded, and the squared distance, of every point."""
    levels = [_centers(rows[::stride]) for stride in _strides(rows.shape[0])]
    num_points = len(points)
    nearest = np.zeros(num_points, np.int32)
    squares = np.empty(num_points, np.float32)

    def task(index: int) -> None:
        part = slice(index * BLOCK, min((index + 1) * BLOCK, num_points))
        _search_block(padded(points[part]), nearest[part], squares[part], levels)

    parallel_for(task, -(-num_points // BLOCK))
    return nearest, squares


def _strides(num_centers: int) -> list[int]:
    strides = [1]
    while num_centers // (strides[0] * STEP) >= SMALLEST_LEVEL:
        strides.insert(0, strides[0] * STEP)
    return strides


def _centers(rows: Floats) -> Centers:
    rows = np.ascontiguousarray(rows)
    return Centers(rows, packed(rows), np.zeros(len(rows), np.float32))


def _search_block(rows: Floats, nearest: Ints, squares: Floats, levels: list[Centers]) -> None:
    order = np.arange(len(rows), dtype=np.int32)
    gaps = np.zeros(len(rows), np.float32)
    dims = (0,) * rows.shape[1]
    for index, centers in enumerate(levels):
        if index:
            sort_by_cluster(nearest, np.zeros(len(centers.rows) + 1, np.int64), order)
            nearest *= STEP
            gaps[:] = 0
        search(State(rows, order, nearest, squares, gaps), centers, 0, len(rows), dims)
