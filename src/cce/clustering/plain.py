"""Exact nearest centroids in plain torch: the definition, and a faster search that equals it to the bit.

The squared distance is, by definition, `(x_0 - c_0)² + (x_1 - c_1)² + …`, each step rounded to float32, added from the
first dimension to the last; ties go to the lower index. `measure_block` writes that down. On a CPU a matrix product
orders the centroids first: `score(x, c) = |c|² / 2 - x·c` has the order of the distances but for rounding. Where the
second-best score is so close to the best that rounding could have swapped them, the definition decides.

Points go through in blocks, so memory is bounded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from cce.compiled import in_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.clustering.progress import Progress

PAIRS_IN_BLOCK = 1 << 19  # scores in one product: 2 MB, which stay in the cache
PAIRS_IN_SMALL_BLOCK = (1 << 15) - 1  # below where torch starts threads of its own
PAIRS_IN_BLOCK_GPU = 1 << 26
SLACK = 1e-5  # relative; float32 distances of up to 32 dimensions are off by less than 2e-6
ROUNDING = 2.0**-24
TINY = 1e-34  # absolute, for scores that underflow


class Found(NamedTuple):
    """What a search says of every point."""

    nearest: Tensor  # (n,) int64
    squares: Tensor  # (n,) float32, squared distance to it
    gaps: Tensor  # (n,) float32, lower bound on the distance to any other centroid


def measure_block(rows: Tensor, centroids: Tensor) -> Found:
    """Return the nearest centroids of few rows, every distance measured: the definition."""
    squares = torch.zeros(rows.shape[0], centroids.shape[0], device=rows.device)
    for row_column, centroid_column in zip(rows.unbind(1), centroids.unbind(1), strict=True):
        difference = row_column[:, None] - centroid_column
        squares += difference.mul_(difference)
    nearest = squares.argmin(1, keepdim=True)
    best = squares.gather(1, nearest).squeeze(1)
    second = squares.scatter_(1, nearest, torch.inf).amin(1)
    return Found(nearest.squeeze(1), best, second.sqrt_().mul_(1 - SLACK))


def measure_all(points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Found:
    """Return the nearest centroid of every point by the definition, block by block."""
    return _in_blocks(lambda rows: measure_block(rows, centroids), points, centroids, PAIRS_IN_SMALL_BLOCK, progress)


def plain_search(points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Found:
    """Return the same, faster on a CPU."""
    if points.device.type != "cpu":
        return measure_all(points, centroids, progress)
    return _in_blocks(Scores(centroids).search, points, centroids, PAIRS_IN_BLOCK, progress)


def measure_nearest(points: Tensor, centroids: Tensor, nearest: Tensor) -> Tensor:
    """Return the `(n,)` squared distance of every point to its centroid, by the definition."""
    squares = torch.zeros_like(points[:, 0])
    for row_column, centroid_column in zip(points.unbind(1), centroids.unbind(1), strict=True):
        difference = row_column - centroid_column[nearest]
        squares += difference.mul_(difference)
    return squares


class Scores:
    """Scores of CPU points, both around the middle of the centroids: near the origin they round less."""

    def __init__(self, centroids: Tensor) -> None:
        self.centroids = centroids
        self.middle = centroids.double().mean(0).float()
        self.columns = (centroids - self.middle).t().contiguous()
        self.halves = self.columns.square().sum(0).div_(2)
        self.longest = float(self.halves.max() * 2) ** 0.5

    def search(self, rows: Tensor) -> Found:
        """Find the nearest centroid of each row of one block."""
        shifted = rows - self.middle
        scores = torch.addmm(self.halves, shifted, self.columns, alpha=-1)
        best, nearest = scores.min(1)
        second = scores.scatter_(1, nearest[:, None], torch.inf).amin(1).double()
        norms = shifted.double().square_().sum(1).sqrt_()
        doubts = (norms + self.longest).square_().mul_((2 * rows.shape[1] + 16) * ROUNDING).add_(TINY)
        gaps = (norms.square_() + 2 * (second - 2 * doubts)).clamp_(min=0).sqrt_().mul_(1 - 1e-6)
        found = Found(nearest, measure_nearest(rows, self.centroids, nearest), gaps.float())
        self._settle(found, rows, (~(second - best > 2 * doubts)).nonzero().squeeze(1))
        return found

    def _settle(self, found: Found, rows: Tensor, doubtful: Tensor) -> None:
        """Let the definition decide."""
        if len(doubtful):
            for values, exact in zip(found, measure_all(rows[doubtful], self.centroids), strict=True):
                values[doubtful] = exact


def _in_blocks(
    search: Callable[[Tensor], Found], points: Tensor, centroids: Tensor, num_pairs: int, progress: Progress | None
) -> Found:
    if points.device.type != "cpu":
        num_pairs = PAIRS_IN_BLOCK_GPU
    elif in_worker():  # several blocks at once: each on one thread
        num_pairs = PAIRS_IN_SMALL_BLOCK
    blocks = []
    for rows in torch.split(points, max(1, num_pairs // len(centroids))):
        started = time.perf_counter()
        blocks.append(search(rows))
        if progress is not None:
            progress.add(len(rows) * len(centroids), time.perf_counter() - started)
    return Found(*map(torch.cat, zip(*blocks, strict=True)))
