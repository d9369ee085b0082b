"""scikit-learn's own tests of k-means, as its wheel ships them, with our Lloyd step inside.

`KMeans` and `k_means` of scikit-learn run as they are; only the loop behind `algorithm="lloyd"` is ours. What never
comes to that loop is left out, or skipped, with the reason.
"""

import numpy as np
import pytest
import torch

from cce.clustering import kmeans, nearest_centroid

_kmeans = pytest.importorskip("sklearn.cluster._kmeans")
_suite = pytest.importorskip("sklearn.cluster.tests.test_k_means")
pytestmark = pytest.mark.slow

LEFT_OUT = {
    "test_euclidean_distance": "private, in Cython",
    "test_inertia": "private, in Cython",
    "test_is_same_clustering": "private, in Cython",
    "test_relocate_empty_clusters": "private, in Cython; its callers are tested",
    "test_kmeans_plusplus_dataorder": "scikit-learn's seeding",
    "test_kmeans_plusplus_norms": "scikit-learn's seeding",
    "test_kmeans_plusplus_output": "scikit-learn's seeding",
    "test_sample_weight_init": "scikit-learn's seeding",
    "test_sample_weight_zero": "scikit-learn's seeding",
}
SKIPPED = {  # parts of names
    "elkan": "Elkan's algorithm is scikit-learn's own",
    "minibatch": "mini-batches are scikit-learn's own",
}
TESTS = {name: test for name, test in vars(_suite).items() if name.startswith("test_")}


def lloyd(X, sample_weight, centers_init, max_iter=300, verbose=False, tol=1e-4, n_threads=1):
    """scikit-learn's loop around our step: labels that stay, or centers that hardly move, end it."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    points, weights = torch.from_numpy(np.ascontiguousarray(dense)), torch.from_numpy(sample_weight.copy())
    centers, labels, is_strict = torch.from_numpy(centers_init.copy()), None, False
    for iteration in range(max_iter):
        fit = kmeans(points, len(centers), init=centers, sample_weight=weights, max_iter=1)
        if verbose:
            print(f"Iteration {iteration}, inertia {fit.inertias[0]}.")
        found = nearest_centroid(points, centers)
        shift = float((fit.centroids - centers).square().sum())
        centers = fit.centroids
        if labels is not None and torch.equal(found, labels):
            is_strict = True
            if verbose:
                print(f"Converged at iteration {iteration}: strict convergence.")
            break
        labels = found
        if shift <= tol:
            if verbose:
                print(f"Converged at iteration {iteration}: center shift {shift} within tolerance {tol}.")
            break
    if not is_strict:
        labels = nearest_centroid(points, centers)
    inertia = float((weights * (points - centers[labels]).square().sum(1)).sum())
    return labels.int().numpy(), inertia, centers.numpy(), iteration + 1


@pytest.fixture(autouse=True)
def our_step(monkeypatch, request):
    for part, reason in SKIPPED.items():
        if part in request.node.name.lower():
            pytest.skip(reason)
    monkeypatch.setattr(_kmeans, "_kmeans_single_lloyd", lloyd)


@pytest.fixture
def global_random_seed():
    """What scikit-learn's own conftest gives by default."""
    return 42


@pytest.fixture(params=[np.float32, np.float64])
def global_dtype(request):
    """Both types that scikit-learn's own conftest may give."""
    return request.param


def test_what_is_left_out_is_there():
    assert set(LEFT_OUT) <= set(TESTS)
    assert len(TESTS) > 50


globals().update({name: test for name, test in TESTS.items() if name not in LEFT_OUT})
