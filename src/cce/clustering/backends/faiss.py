"""faiss (Johnson, Douze and Jégou, 2017) behind the interface of this package; the one file that imports it."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cce.clustering.backends.base import Backend, KMeans

if TYPE_CHECKING:
    from cce.clustering.progress import Progress


def faiss_kmeans(points: Tensor, init: Tensor, *, sample_weight: Tensor | None, max_iter: int, tol: float) -> KMeans:
    """Run faiss's k-means from `init`; it knows no `tol` and needs as many points as clusters."""
    faiss = _faiss()
    num_points, n_clusters = points.shape[0], init.shape[0]
    if num_points < n_clusters:
        raise ValueError(f"points must be at least n_clusters = {n_clusters} for faiss, got {num_points}.")
    if tol:
        raise ValueError(f"tol must be 0 for faiss, which has none, got {tol}.")
    fit = faiss.Kmeans(
        points.shape[1],
        n_clusters,
        niter=max_iter,
        min_points_per_centroid=1,  # else it prints a warning
        max_points_per_centroid=num_points,  # else it takes a sample
    )
    mass = None if sample_weight is None else sample_weight.cpu().numpy()
    fit.train(points.cpu().numpy(), weights=mass, init_centroids=init.cpu().numpy())
    inertias = tuple(float(value) for value in fit.obj[:max_iter])
    return KMeans(torch.from_numpy(fit.centroids.copy()).to(points.device), inertias)


def faiss_nearest(points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Tensor:
    """Search a flat index."""
    del progress
    index = _faiss().IndexFlatL2(centroids.shape[1])
    index.add(centroids.cpu().numpy())
    _, nearest = index.search(points.cpu().numpy(), 1)
    return torch.from_numpy(nearest).squeeze(1).to(points.device)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError('backend "faiss" needs the package faiss-cpu: pip install faiss-cpu') from error
    return faiss


def _is_safe() -> bool:
    """Whether faiss is installed where it can share a process with torch: on macOS two OpenMP runtimes crash."""
    return sys.platform != "darwin" and importlib.util.find_spec("faiss") is not None


BACKEND = Backend("faiss", nearest=faiss_nearest, fit=faiss_kmeans, suits_auto=_is_safe)
