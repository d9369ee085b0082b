"""One step of Lloyd's algorithm (1957) in plain torch: the definition, the fallback, and what runs on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cce.clustering.nearest import plain_nearest


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

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        nearest, squares = plain_nearest(self.points, centroids)
        weights = self.weights.double()
        sums = torch.zeros_like(centroids, dtype=torch.float64)
        sums.index_add_(0, nearest, self.points.double() * weights[:, None])
        totals = torch.zeros_like(sums[:, 0]).index_add_(0, nearest, weights)
        return Assigned(sums, totals, nearest, squares, float((squares * weights).sum()))
