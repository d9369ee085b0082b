"""One step of Lloyd's algorithm (1957) in plain torch: the fallback, and what runs on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from cce.clustering.plain import Found, PlainSearch

if TYPE_CHECKING:
    from cce.clustering.progress import Progress

ROWS_AT_ONCE = 1 << 16  # points summed at once: their float64 copies stay small


@dataclass(frozen=True)
class Assigned:
    """What one pass over the points says about the centroids it was given."""

    sums: Tensor  # (num_clusters, width) float64, weighted sum of the points of each cluster
    totals: Tensor  # (num_clusters,) float64, weight of each cluster
    nearest: Tensor  # (n,) integers, the cluster of each point
    squares: Tensor  # (n,) float32, squared distance of each point to its centroid
    inertia: float


class Lloyd(Protocol):
    """A pass over points that do not change, called with the centroids of each iteration."""

    points: Tensor  # (n, width) in the order in which `Assigned` speaks of them
    weights: Tensor  # (n,) in the same order

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        ...


class PlainLloyd:
    """Lloyd's step in plain torch."""

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
