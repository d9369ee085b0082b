"""faiss (Johnson, Douze and Jégou, 2017) behind the interface of this package; the one file that imports it.

faiss knows float32 only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cce.clustering.backends import Backend, KMeans


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
    mass = None if sample_weight is None else _floats(sample_weight)
    fit.train(_floats(points), weights=mass, init_centroids=_floats(init))
    inertias = tuple(float(value) for value in fit.obj[:max_iter])
    return KMeans(torch.from_numpy(fit.centroids.copy()).to(points), inertias)


def faiss_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Search a flat index."""
    index = _faiss().IndexFlatL2(centroids.shape[1])
    index.add(_floats(centroids))
    _, nearest = index.search(_floats(points), 1)
    return torch.from_numpy(nearest).squeeze(1).to(points.device)


def _floats(values: Tensor) -> Any:
    return values.float().cpu().numpy()


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError('backend "faiss" needs the package faiss-cpu: pip install faiss-cpu') from error
    return faiss


BACKEND = Backend("faiss", nearest=faiss_nearest, fit=faiss_kmeans)
