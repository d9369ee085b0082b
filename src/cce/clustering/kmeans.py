"""k-means by Lloyd's algorithm: weighted, empty clusters re-seeded, the same bits on any number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.checks import check_number, check_range
from cce.clustering.checks import checked_points, checked_weights
from cce.clustering.compiled_lloyd import compiled_lloyd
from cce.clustering.faiss_peer import faiss_kmeans
from cce.clustering.fit import KMeans
from cce.clustering.lloyd import Assigned, Lloyd, PlainLloyd
from cce.clustering.nearest import choose_backend
from cce.clustering.progress import Progress
from cce.clustering.sklearn_peer import sklearn_kmeans
from cce.clustering.start import starting_centroids
from cce.indexing import check_generator

if TYPE_CHECKING:
    from collections.abc import Sequence


PEERS = {"faiss": faiss_kmeans, "sklearn": sklearn_kmeans}


def kmeans(
    points: Tensor,
    num_clusters: int,
    *,
    weights: Tensor | None = None,
    num_iterations: int = 50,  # paper, "K-means"
    tolerance: float = 0.0,
    start: str | Tensor = "random",
    generator: torch.Generator | None = None,
    backend: str = "auto",
    progress: Progress | None = None,
) -> KMeans:
    """Cluster `points`, `(n, width)`, around `num_clusters` centroids.

    A point of weight `w` counts as `w` equal points. `start` is "random" (different points, drawn by weight),
    "k-means++" or a `(num_clusters, width)` tensor. The fit ends after `num_iterations`, when nothing changes, or when
    an iteration lowers the inertia by no more than `tolerance` times itself. Plain torch reports its work to
    `progress`, and long work by itself.
    """
    rows = checked_points(points)
    mass = checked_weights(weights, rows)
    check_generator(generator)
    _check_numbers(rows, num_clusters, num_iterations, tolerance)
    name = choose_backend(backend, rows, num_clusters)
    if backend == "auto" and name == "faiss" and tolerance > 0:  # which faiss does not know
        name = "compiled"
    centroids = starting_centroids(rows, num_clusters, weights=mass, start=start, generator=generator)
    if num_iterations == 0:
        return KMeans(centroids, ())
    if name in PEERS:
        return PEERS[name](rows, centroids, weights=mass, num_iterations=num_iterations, tolerance=tolerance)
    if name == "compiled":
        return _iterate(compiled_lloyd(rows, mass), centroids, num_iterations, tolerance)
    if progress is not None:
        return _iterate(PlainLloyd(rows, mass, progress), centroids, num_iterations, tolerance)
    work = f"k-means of {len(rows):,} points and {num_clusters:,} clusters"
    with Progress(work, len(rows) * num_clusters * num_iterations) as own:
        return _iterate(PlainLloyd(rows, mass, own), centroids, num_iterations, tolerance)


def _iterate(lloyd: Lloyd, centroids: Tensor, num_iterations: int, tolerance: float) -> KMeans:
    inertias: list[float] = []
    for _ in range(num_iterations):
        assigned = lloyd.assign(centroids)
        inertias.append(assigned.inertia)
        moved = _moved(centroids, assigned, lloyd)
        unchanged = torch.equal(moved, centroids)
        centroids = moved
        if unchanged or _has_converged(inertias, tolerance):
            break
    return KMeans(centroids, tuple(inertias))


def _moved(centroids: Tensor, assigned: Assigned, lloyd: Lloyd) -> Tensor:
    """Return the mean of every cluster; an empty one moves to a badly served point, or stays if there is none."""
    is_empty = assigned.totals == 0
    means = assigned.sums / assigned.totals.masked_fill(is_empty, 1.0)[:, None]
    moved = torch.where(is_empty[:, None], centroids, means.to(centroids.dtype))
    empty = is_empty.nonzero().squeeze(1)
    if empty.numel():
        rows = _badly_served(assigned, lloyd.weights, empty.numel())
        moved[empty[: rows.numel()]] = lloyd.points[rows]
    return moved


def _badly_served(assigned: Assigned, weights: Tensor, num_wanted: int) -> Tensor:
    """Return the worst point of each of the clusters with the largest errors, one point per cluster, worst first.

    One per cluster, because the worst points of all are often copies of one another.
    """
    nearest, errors = assigned.nearest.long(), assigned.squares * weights
    cluster_errors = torch.zeros_like(assigned.totals).index_add_(0, nearest, errors.double())
    worst = torch.zeros_like(assigned.totals, dtype=errors.dtype).scatter_reduce_(0, nearest, errors, "amax")
    candidates = ((errors == worst[nearest]) & (errors > 0)).nonzero().squeeze(1)
    first = torch.full_like(assigned.totals, errors.numel(), dtype=torch.int64)
    first.scatter_reduce_(0, nearest[candidates], candidates, "amin")
    num_found = min(num_wanted, int((worst > 0).sum()))
    clusters = cluster_errors.sort(descending=True, stable=True).indices[:num_found]
    return first[clusters]


def _has_converged(inertias: Sequence[float], tolerance: float) -> bool:
    if tolerance == 0.0 or len(inertias) < 2:
        return False
    return inertias[-2] - inertias[-1] <= tolerance * inertias[-2]


def _check_numbers(points: Tensor, num_clusters: int, num_iterations: int, tolerance: float) -> None:
    if points.shape[0] == 0:
        raise ValueError("points must have at least one row, got 0.")
    check_range("num_clusters", num_clusters, 1, 2**31)
    check_range("num_iterations", num_iterations, 0, 2**31)
    check_number("tolerance", tolerance)
