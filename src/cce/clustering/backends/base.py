"""What a k-means backend is: a search for nearest centroids, and either a step of Lloyd's algorithm or a whole fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class KMeans:
    """Centroids, and how the fit came to them."""

    centroids: Tensor  # (n_clusters, width) of the type of the points, on their device
    inertias: tuple[float, ...]  # weighted sum of squared distances before each update, one per iteration


@dataclass(frozen=True)
class Assigned:
    """What one pass over the points says about the centroids it was given."""

    sums: Tensor  # (n_clusters, width) float64, weighted sum of the points of each cluster
    totals: Tensor  # (n_clusters,) float64, weight of each cluster
    nearest: Tensor  # (n,) integers, the cluster of each point
    squares: Tensor  # (n,) squared distance of each point to its centroid
    inertia: float


class Lloyd(Protocol):
    """A pass over points that do not change, called with the centroids of each iteration."""

    points: Tensor  # (n, width) in the order in which `Assigned` speaks of them
    weights: Tensor  # (n,) in the same order

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        ...


class Fit(Protocol):
    """A whole k-means of another package, from given centroids."""

    def __call__(
        self, points: Tensor, init: Tensor, *, sample_weight: Tensor | None, max_iter: int, tol: float
    ) -> KMeans:
        """Return its centroids and inertias."""
        ...


@dataclass(frozen=True)
class Backend:
    """One way to run k-means. Points have been checked: contiguous `(n, width)` of float32 or float64, and finite."""

    name: str
    nearest: Callable[[Tensor, Tensor], Tensor]  # points, centroids → (n,) int64
    lloyd: Callable[[Tensor, Tensor | None], Lloyd] | None = None  # points, weights → a step of ours
    fit: Fit | None = None  # or all steps at once
    why_not: Callable[[Tensor], str] = lambda _: ""  # why it cannot take these points, if it cannot
