"""k-means in plain torch: the fallback where loops are not compiled, and what runs on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.clustering.backends.base import Assigned, Backend
from cce.clustering.search.plain import Found, PlainSearch

if TYPE_CHECKING:
    from cce.clustering.progress import Progress

ROWS_AT_ONCE = 1 << 16  # points summed at once: their float64 copies stay small


class PlainLloyd:
    """Lloyd's step (1957) in plain torch."""

    def __init__(self, points: Tensor, weights: Tensor | None, progress: Progress | None = None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights
        self.progress = progress
        self.search = PlainSearch(points)

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        return self._sum(self.search(centroids, self.progress), centroids)

    def _sum(self, found: Found, centroids: Tensor) -> Assigned:
        sums = torch.zeros_like(centroids, dtype=torch.float64)
        totals = torch.zeros_like(sums[:, 0])
        for rows, nearest, weights in zip(
            *(torch.split(each, ROWS_AT_ONCE) for each in (self.points, found.nearest, self.weights)), strict=True
        ):
            mass = weights.double()
            sums.index_add_(0, nearest, rows.double().mul_(mass[:, None]))
            totals.index_add_(0, nearest, mass)
        inertia = float((found.squares * self.weights.double()).sum())
        return Assigned(sums, totals, found.nearest, found.squares, inertia)


def plain_nearest(points: Tensor, centroids: Tensor, progress: Progress) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids."""
    return PlainSearch(points)(centroids, progress).nearest


BACKEND = Backend("torch", nearest=plain_nearest, lloyd=PlainLloyd)
