"""k-means in plain torch: the definition, and what runs on a GPU and where loops are not compiled.

The squared distance is, by definition, `(x_0 - c_0)² + (x_1 - c_1)² + …`, each step rounded to the type of the points,
added from the first dimension to the last; ties go to the lower index. `measure_block` writes that down.

On a CPU a matrix product is faster: `score(x, c) = |c|² / 2 - x·c` has the order of the distances except for rounding.
Where the second-best score is so close to the best that rounding could have swapped them, the definition decides.

Points go through in blocks, so memory is bounded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cce.clustering.backends import Assigned, Backend
from cce.compiled import parallel_for

PAIRS_IN_BLOCK = 1 << 19  # scores in one product: 2 MB, which stay in the cache
PAIRS_IN_SMALL_BLOCK = (1 << 15) - 1  # below where torch starts threads of its own, which wait long for a busy core
PAIRS_IN_BLOCK_GPU = 1 << 26
FEW_VALUES = 1 << 20  # differences of coordinates that are measured before anything else would pay
ROWS_AT_ONCE = 1 << 16  # points summed at once: their float64 copies stay small
TINY = 1e-33  # absolute, for squares and scores that underflow


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
    num_pairs = PAIRS_IN_SMALL_BLOCK if points.device.type == "cpu" else PAIRS_IN_BLOCK_GPU
    blocks = [measure_block(rows, centroids) for rows in torch.split(points, max(1, num_pairs // len(centroids)))]
    return Found(*map(torch.cat, zip(*blocks, strict=True)))


def search(points: Tensor, centroids: Tensor) -> Found:
    """Return the nearest centroid of every point: what `measure_all` finds, faster."""
    if points.device.type != "cpu" or len(points) * centroids.numel() <= FEW_VALUES:
        return measure_all(points, centroids)
    scores = Scores(centroids)
    pairs_in_block = PAIRS_IN_BLOCK if torch.get_num_threads() == 1 else PAIRS_IN_SMALL_BLOCK
    blocks = torch.split(points, max(1, pairs_in_block // len(centroids)))
    found = [Found(points[:0], points[:0])] * len(blocks)

    def task(index: int) -> None:
        found[index] = scores.search(blocks[index])

    parallel_for(task, len(blocks))
    return Found(*map(torch.cat, zip(*found, strict=True)))


class Scores:
    """Scores of CPU points, both around the middle of the centroids: near the origin they round less."""

    def __init__(self, centroids: Tensor) -> None:
        self.centroids = centroids
        self.middle = centroids.double().mean(0).to(centroids.dtype)
        self.shifted = centroids - self.middle
        self.halves = self.shifted.square().sum(1).div_(2)
        self.longest = float(2 * self.halves.max()) ** 0.5

    def search(self, rows: Tensor) -> Found:
        """Find the nearest centroid of each row `(n, width)` of one block."""
        shifted = rows - self.middle
        scores = torch.addmm(self.halves, shifted, self.shifted.t(), alpha=-1)
        best, nearest = scores.min(1)
        second = scores.scatter_(1, nearest[:, None], torch.inf).amin(1)
        rounding = torch.finfo(rows.dtype).eps / 2 * (2 * rows.shape[1] + 18)
        errors = (shifted.square_().sum(1).sqrt_() + self.longest).square_().mul_(rounding).add_(TINY)
        doubtful = (~(second - best > 2 * errors)).nonzero().squeeze(1)
        if len(doubtful):
            nearest[doubtful] = measure_all(rows[doubtful], self.centroids).nearest
        squares = torch.zeros_like(rows[:, 0])  # of every row to its centroid, by the definition
        for row_column, centroid_column in zip(rows.unbind(1), self.centroids.unbind(1), strict=True):
            difference = row_column - centroid_column[nearest]
            squares += difference.mul_(difference)
        return Found(nearest, squares)


class PlainLloyd:
    """Lloyd's step (1957) in plain torch."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        found = search(self.points, centroids)
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


BACKEND = Backend("torch", nearest=lambda points, centroids: search(points, centroids).nearest, lloyd=PlainLloyd)
