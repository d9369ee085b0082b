"""k-means in plain torch: the definition, and what runs on a GPU and where loops are not compiled.

The squared distance is, by definition, `(x_0 - c_0)² + (x_1 - c_1)² + …`, each step rounded to the type of the points,
added from the first dimension to the last; ties go to the lower index. `measure_block` writes that down.

Points go through in blocks, so memory is bounded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cce.clustering.backends import Assigned, Backend
from cce.compiled import parallel_for

PAIRS_IN_BLOCK = (1 << 15) - 1  # below where torch starts threads of its own, which wait long for a busy core
PAIRS_IN_BLOCK_GPU = 1 << 26
ROWS_AT_ONCE = 1 << 16  # points summed at once: their float64 copies stay small


class Found(NamedTuple):
    """What a search says of every point."""

    nearest: Tensor  # (n,) int64
    squares: Tensor  # (n,) squared distance to it


def measure_block(rows: Tensor, centroids: Tensor) -> Found:
    """Return the nearest centroids of few rows, every distance measured: the definition."""
    squares = rows.new_zeros(len(rows), len(centroids))
    for row_column, centroid_column in zip(rows.unbind(1), centroids.unbind(1), strict=True):
        difference = row_column[:, None] - centroid_column
        squares += difference.mul_(difference)
    nearest = squares.argmin(1)
    return Found(nearest, squares.gather(1, nearest[:, None]).squeeze(1))


def measure_all(points: Tensor, centroids: Tensor) -> Found:
    """Return the nearest centroid of every point by the definition, block by block."""
    num_pairs = PAIRS_IN_BLOCK if points.device.type == "cpu" else PAIRS_IN_BLOCK_GPU
    size = max(1, num_pairs // len(centroids))
    found = Found(points.new_empty(len(points), dtype=torch.int64), points.new_empty(len(points)))

    def task(index: int) -> None:
        part = slice(index * size, (index + 1) * size)
        found.nearest[part], found.squares[part] = measure_block(points[part], centroids)

    parallel_for(task, -(-len(points) // size))
    return found


class PlainLloyd:
    """Lloyd's step (1957) in plain torch."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights

    def assign(self, centroids: Tensor) -> Assigned:
        found = measure_all(self.points, centroids)
        sums = torch.zeros_like(centroids, dtype=torch.float64)
        totals = torch.zeros_like(sums[:, 0])
        for rows, nearest, weights in zip(
            *(torch.split(each, ROWS_AT_ONCE) for each in (self.points, found.nearest, self.weights)), strict=True
        ):
            mass = weights.double()
            sums.index_add_(0, nearest, rows.double() * mass[:, None])
            totals.index_add_(0, nearest, mass)
        inertia = float((found.squares * self.weights.double()).sum())
        return Assigned(sums, totals, found.nearest, found.squares, inertia)


BACKEND = Backend("torch", nearest=lambda points, centroids: measure_all(points, centroids).nearest, lloyd=PlainLloyd)
