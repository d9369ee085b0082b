"""scikit-learn's k-means behind the interface of this package; the one file that imports it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cce.clustering.backends.base import Backend, KMeans

if TYPE_CHECKING:
    from cce.clustering.progress import Progress


def sklearn_kmeans(points: Tensor, init: Tensor, *, sample_weight: Tensor | None, max_iter: int, tol: float) -> KMeans:
    """Run scikit-learn's Lloyd from `init`; its `tol` is its own, and it reports only the last inertia."""
    num_points, n_clusters = points.shape[0], init.shape[0]
    if num_points < n_clusters:
        raise ValueError(f"points must be at least n_clusters = {n_clusters} for sklearn, got {num_points}.")
    cluster = _sklearn("cluster")
    fit = cluster.KMeans(
        n_clusters,
        init=init.cpu().numpy(),
        n_init=1,
        max_iter=max_iter,
        tol=tol,
        algorithm="lloyd",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than clusters
        fit.fit(points.cpu().numpy(), sample_weight=None if sample_weight is None else sample_weight.cpu().numpy())
    return KMeans(torch.from_numpy(fit.cluster_centers_).to(points), (float(fit.inertia_),))


def sklearn_nearest(points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Tensor:
    """Take the smallest of the pairwise distances."""
    del progress
    nearest = _sklearn("metrics").pairwise_distances_argmin(points.cpu().numpy(), centroids.cpu().numpy())
    return torch.from_numpy(nearest).long().to(points.device)


def _sklearn(module: str) -> Any:
    try:
        import sklearn.cluster
        import sklearn.metrics
    except ImportError as error:
        raise ImportError('backend "sklearn" needs the package scikit-learn: pip install scikit-learn') from error
    return getattr(sklearn, module)


BACKEND = Backend("sklearn", nearest=sklearn_nearest, fit=sklearn_kmeans)
