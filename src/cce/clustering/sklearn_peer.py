"""scikit-learn's k-means behind the interface of this room; the one file that imports it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from cce.clustering.fit import KMeans


def sklearn_kmeans(
    points: Tensor, start: Tensor, *, weights: Tensor | None, num_iterations: int, tolerance: float
) -> KMeans:
    """Run scikit-learn's Lloyd from `start`; its tolerance is its own, and it tells only the last inertia."""
    num_points, num_clusters = points.shape[0], start.shape[0]
    if num_points < num_clusters:
        raise ValueError(f"points must be at least num_clusters = {num_clusters} for sklearn, got {num_points}.")
    cluster = _sklearn("cluster")
    fit = cluster.KMeans(
        num_clusters,
        init=start.cpu().numpy(),
        n_init=1,
        max_iter=num_iterations,
        tol=tolerance,
        algorithm="lloyd",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than clusters
        fit.fit(points.cpu().numpy(), sample_weight=None if weights is None else weights.cpu().numpy())
    return KMeans(torch.from_numpy(fit.cluster_centers_).to(points), (float(fit.inertia_),))


def sklearn_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Take the smallest of the pairwise distances."""
    nearest = _sklearn("metrics").pairwise_distances_argmin(points.cpu().numpy(), centroids.cpu().numpy())
    return torch.from_numpy(nearest).long().to(points.device)


def _sklearn(module: str) -> Any:
    try:
        import sklearn.cluster
        import sklearn.metrics
    except ImportError as error:
        raise ImportError('backend "sklearn" needs the package scikit-learn: pip install scikit-learn') from error
    return getattr(sklearn, module)
