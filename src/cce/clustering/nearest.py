"""The nearest centroid of every point: exact, ties to the lower index.

The squared distance is, by definition, `(x_0 - c_0)² + (x_1 - c_1)² + …`, each step rounded to float32, added from the
first dimension to the last. `plain_nearest` writes that down in torch; the compiled search gives the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cce import compiled
from cce.clustering.checks import check_same_space, checked_points
from cce.clustering.compiled_nearest import compiled_nearest
from cce.clustering.faiss_peer import faiss_is_safe, faiss_nearest
from cce.clustering.sklearn_peer import sklearn_nearest

BACKENDS = ("auto", "torch", "compiled", "faiss", "sklearn")
SEARCHES = {"compiled": compiled_nearest, "faiss": faiss_nearest, "sklearn": sklearn_nearest}
WIDEST_COMPILED = 4096
WIDEST_PRUNED = 8  # beyond, boxes prune little, and faiss was measured to be faster (benchmarks/kmeans.py)
FEW_PAIRS = 1 << 18  # a fifth of a second for fifty iterations in plain torch; compiling takes longer, once
PAIRS_AT_ONCE = (1 << 15) - 1  # distances in one piece of work on a CPU: in its cache, and below where torch forks
PAIRS_AT_ONCE_GPU = 1 << 26


def nearest_centroid(points: Tensor, centroids: Tensor, *, backend: str = "auto") -> Tensor:
    """Return the index of the nearest centroid of every point: `(n, width), (k, width) → (n,)` int64.

    "torch" is the definition and "compiled" equals it; "faiss" and "sklearn" use other formulas for the distance, so
    near ties may fall differently there.
    """
    rows = checked_points(points)
    centers = checked_points(centroids, "centroids")
    check_same_space(rows, centers, "centroids")
    if centers.shape[0] == 0:
        raise ValueError("centroids must have at least one row, got 0.")
    name = choose_backend(backend, rows, centers.shape[0])
    if rows.shape[0] == 0 or name == "torch":
        return plain_nearest(rows, centers)[0]
    return SEARCHES[name](rows, centers)


def choose_backend(backend: str, points: Tensor, num_centroids: int) -> str:
    """Resolve "auto", and refuse a backend that does not exist or cannot take these points.

    "auto" is torch for few pairs, where compiling would take longer than searching, and otherwise the fastest that is
    installed: compiled loops, or faiss for wide points.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    num_points, width = points.shape
    fits = compiled.available and points.device.type == "cpu" and width <= WIDEST_COMPILED
    if backend == "auto":
        if not fits or num_points * num_centroids <= FEW_PAIRS:
            return "torch"
        faster = faiss_is_safe() and width > WIDEST_PRUNED and num_points >= num_centroids
        return "faiss" if faster else "compiled"
    if backend == "compiled" and not fits:
        raise ValueError(
            f'backend "compiled" needs numba and CPU points of width <= {WIDEST_COMPILED}, '
            f"got {points.device} points of width {points.shape[1]}, numba installed: {compiled.available}."
        )
    return backend


def plain_nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Return `(n,)` int64 indices of the nearest centroids and `(n,)` float32 squared distances to them."""
    pairs = PAIRS_AT_ONCE if points.device.type == "cpu" else PAIRS_AT_ONCE_GPU
    rows_at_once = max(1, pairs // centroids.shape[0])
    pieces = [_nearest_of_rows(rows, centroids) for rows in torch.split(points, rows_at_once)]
    return torch.cat([index for index, _ in pieces]), torch.cat([square for _, square in pieces])


def _nearest_of_rows(rows: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    total = torch.zeros(rows.shape[0], centroids.shape[0], device=rows.device)
    for row_column, centroid_column in zip(rows.unbind(1), centroids.unbind(1), strict=True):
        difference = row_column[:, None] - centroid_column
        total += difference.mul_(difference)
    index = total.argmin(1)
    return index, total.gather(1, index[:, None]).squeeze(1)
