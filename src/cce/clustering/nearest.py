"""The nearest centroid of every point: exact, ties to the lower index (see `plain` for the definition)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce import compiled
from cce.clustering.checks import check_same_space, checked_points
from cce.clustering.compiled_nearest import compiled_nearest
from cce.clustering.faiss_peer import faiss_is_safe, faiss_nearest
from cce.clustering.plain import PlainSearch
from cce.clustering.progress import Progress
from cce.clustering.sklearn_peer import sklearn_nearest

if TYPE_CHECKING:
    from torch import Tensor

BACKENDS = ("auto", "torch", "compiled", "faiss", "sklearn")
SEARCHES = {"compiled": compiled_nearest, "faiss": faiss_nearest, "sklearn": sklearn_nearest}
WIDEST_COMPILED = 4096
WIDEST_PRUNED = 8  # beyond, boxes prune little, and faiss was measured to be faster (benchmarks/kmeans.py)
FEW_PAIRS = 1 << 18  # a fifth of a second for fifty iterations in plain torch; compiling takes longer, once


def nearest_centroid(
    points: Tensor, centroids: Tensor, *, backend: str = "auto", progress: Progress | None = None
) -> Tensor:
    """Return the index of the nearest centroid of every point: `(n, width), (k, width) → (n,)` int64.

    "torch" is the definition and "compiled" equals it; "faiss" and "sklearn" use other formulas for the distance, so
    near ties may fall differently there. Plain torch reports its work to `progress`, and long work by itself.
    """
    rows = checked_points(points)
    centers = checked_points(centroids, "centroids")
    check_same_space(rows, centers, "centroids")
    if centers.shape[0] == 0:
        raise ValueError("centroids must have at least one row, got 0.")
    name = choose_backend(backend, rows, centers.shape[0])
    if name != "torch" and rows.shape[0]:
        return SEARCHES[name](rows, centers)
    if progress is not None:
        return PlainSearch(rows)(centers, progress).nearest
    work = f"search of {len(rows):,} points among {len(centers):,} centroids"
    with Progress(work, len(rows) * len(centers)) as own:
        return PlainSearch(rows)(centers, own).nearest


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
            if not compiled.available and points.device.type == "cpu" and num_points * num_centroids > FEW_PAIRS:
                compiled.warn_plain()
            return "torch"
        faster = faiss_is_safe() and width > WIDEST_PRUNED and num_points >= num_centroids
        return "faiss" if faster else "compiled"
    if backend == "compiled" and not fits:
        raise ValueError(
            f'backend "compiled" needs numba and CPU points of width <= {WIDEST_COMPILED}, '
            f"got {points.device} points of width {points.shape[1]}"
            f"{compiled.why_plain and f', and {compiled.why_plain}'}."
        )
    return backend
