"""faiss (Johnson, Douze and Jégou, 2017) behind the interface of this room; the one file that imports it."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch
from torch import Tensor

from cce.clustering.fit import KMeans


def faiss_kmeans(
    points: Tensor, start: Tensor, *, weights: Tensor | None, num_iterations: int, tolerance: float
) -> KMeans:
    """Run faiss's k-means from `start`; it knows no tolerance and needs as many points as clusters."""
    faiss = _faiss()
    num_points, num_clusters = points.shape[0], start.shape[0]
    if num_points < num_clusters:
        raise ValueError(f"points must be at least num_clusters = {num_clusters} for faiss, got {num_points}.")
    if tolerance:
        raise ValueError(f"tolerance must be 0 for faiss, which has none, got {tolerance}.")
    fit = faiss.Kmeans(
        points.shape[1],
        num_clusters,
        niter=num_iterations,
        min_points_per_centroid=1,  # else it prints a warning
        max_points_per_centroid=num_points,  # else it takes a sample
    )
    mass = None if weights is None else weights.cpu().numpy()
    fit.train(points.cpu().numpy(), weights=mass, init_centroids=start.cpu().numpy())
    inertias = tuple(float(value) for value in fit.obj[:num_iterations])
    return KMeans(torch.from_numpy(fit.centroids.copy()).to(points.device), inertias)


def faiss_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Search a flat index."""
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


def faiss_is_safe() -> bool:
    """Whether faiss is installed where it can share a process with torch: on macOS two OpenMP runtimes crash."""
    return sys.platform != "darwin" and importlib.util.find_spec("faiss") is not None
