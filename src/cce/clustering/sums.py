"""Sums over clusters in a fixed order: the same bits on any number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from cce.clustering.lloyd import Assigned
from cce.compiled import compile_loops, parallel_for

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from cce.clustering.distances import Floats, Ints

    Doubles = npt.NDArray[np.float64]

ROWS_IN_PART = 1 << 16  # points summed in one task; fixed, so that sums do not depend on the number of threads
LARGEST_SUMS = 1 << 23  # numbers in the partial sums of all tasks: 64 MB


def assigned(rows: Floats, weights: Tensor, nearest: Ints, squares: Floats, num_clusters: int) -> Assigned:
    """Sum the points of each cluster, part by part, and the parts in their order."""
    num_rows, width = rows.shape
    num_parts = min(-(-num_rows // ROWS_IN_PART), max(1, LARGEST_SUMS // (num_clusters * (width + 1))))
    bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]
    sums = np.zeros((num_parts, num_clusters, width + 1), np.float64)  # the last column holds the weights
    inertias = np.zeros(num_parts, np.float64)
    mass = weights.numpy()

    def task(part: int) -> None:
        inertias[part] = sum_rows(rows, mass, nearest, squares, bounds[part], bounds[part + 1], sums[part])

    parallel_for(task, num_parts)
    for part in range(1, num_parts):
        sums[0] += sums[part]
    whole = torch.from_numpy(sums[0])
    inertia = float(inertias.sum())
    return Assigned(whole[:, :-1], whole[:, -1], torch.from_numpy(nearest), torch.from_numpy(squares), inertia)


def moved_distances(before: Floats, after: Floats) -> Floats:
    """Return how far each centroid has moved, rounded up."""
    squares = np.square(after.astype(np.float64) - before).sum(1)
    moves: Floats = (np.sqrt(squares) * (1 + 1e-6)).astype(np.float32)
    return moves


@compile_loops
def sum_rows(
    rows: Floats, weights: Floats, nearest: Ints, squares: Floats, begin: int, end: int, sums: Doubles
) -> float:
    """Add the rows `[begin, end)` and their weights to the sums of their clusters; return their inertia."""
    width = sums.shape[1] - 1
    inertia = 0.0
    for row in range(np.uint64(begin), np.uint64(end)):
        cluster = np.uint64(nearest[row])
        weight = np.float64(weights[row])
        inertia += weight * squares[row]
        for d in range(width):
            sums[cluster, d] += weight * rows[row, d]
        sums[cluster, width] += weight
    return inertia
