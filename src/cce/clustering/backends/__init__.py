"""Ways to run k-means, by name: each a search for nearest centroids, and a step of Lloyd's algorithm or a whole fit.

A new one is a file here and its name in `MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from cce import compiled
from cce.checks import check_choice

if TYPE_CHECKING:
    from torch import Tensor

FEW_PAIRS = 1 << 15  # plain torch is as fast; compiling takes longer, once


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


@dataclass(frozen=True)
class Backend:
    """One way to run k-means. Points have been checked: contiguous `(n, width)` of float32 or float64, and finite."""

    name: str
    nearest: Callable[[Tensor, Tensor], Tensor]  # points, centroids → (n,) int64
    lloyd: Callable[[Tensor, Tensor | None], Lloyd] | None = None  # points, weights → a step of ours
    fit: Callable[..., KMeans] | None = None  # or all steps of another package at once, from given centroids
    why_not: Callable[[Tensor], str] = lambda _: ""  # why it cannot take these points, if it cannot


MODULES = ("torch", "native", "faiss")
BACKENDS: dict[str, Backend] = {name: import_module(f"{__name__}.{name}").BACKEND for name in MODULES}


def choose_backend(name: str, points: Tensor, n_clusters: int) -> Backend:
    """Resolve "auto"; reject a backend that does not exist or cannot take these points."""
    check_choice("backend", name, ("auto", *BACKENDS))
    backend = BACKENDS[_fastest(points, n_clusters) if name == "auto" else name]
    why_not = backend.why_not(points)
    if why_not:
        raise ValueError(f"backend {name!r} {why_not}.")
    return backend


def _fastest(points: Tensor, n_clusters: int) -> str:
    """Return plain torch for few pairs, where compiling would take longer than searching, else compiled loops.

    Both give the same result. Which packages are installed plays no part in it.
    """
    if points.shape[0] * n_clusters <= FEW_PAIRS:
        return "torch"
    if not BACKENDS["native"].why_not(points):
        return "native"
    if not compiled.available and points.device.type == "cpu":
        compiled.warn_plain()
    return "torch"
