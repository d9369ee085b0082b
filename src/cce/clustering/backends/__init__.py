"""Ways to run k-means, by name. A new one is a file here and its name in `MODULES`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cce import compiled
from cce.checks import check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from cce.clustering.backends.base import Backend

MODULES = ("torch", "native", "faiss", "sklearn")
BACKENDS: dict[str, Backend] = {name: import_module(f"{__name__}.{name}").BACKEND for name in MODULES}
WIDEST_PRUNED = 8  # beyond, boxes prune little, and faiss was measured to be faster (benchmarks/kmeans.py)
FEW_PAIRS = 1 << 18  # a fifth of a second for fifty iterations in plain torch; compiling takes longer, once


def choose_backend(name: str, points: Tensor, n_clusters: int, *, tol: float = 0.0) -> Backend:
    """Resolve "auto"; reject a backend that does not exist or cannot take these points."""
    check_choice("backend", name, ("auto", *BACKENDS))
    backend = BACKENDS[_fastest(points, n_clusters, tol) if name == "auto" else name]
    why_not = backend.why_not(points)
    if why_not:
        raise ValueError(f"backend {name!r} {why_not}.")
    return backend


def _fastest(points: Tensor, n_clusters: int, tol: float) -> str:
    """Return plain torch for few pairs, where compiling would take longer than searching, else the fastest."""
    num_points, width = points.shape
    if num_points * n_clusters <= FEW_PAIRS:
        return "torch"
    if BACKENDS["native"].why_not(points):
        if not compiled.available and points.device.type == "cpu":
            compiled.warn_plain()
        return "torch"
    suits_faiss = width > WIDEST_PRUNED and num_points >= n_clusters and tol == 0  # it knows no tol
    return "faiss" if suits_faiss and BACKENDS["faiss"].suits_auto() else "native"
