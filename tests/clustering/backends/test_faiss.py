"""faiss-cpu behind our interface."""

import sys

import pytest
import torch

from cce.clustering import kmeans, nearest_centroid

pytest.importorskip("faiss")


@pytest.mark.slow
def test_the_same_start_leads_where_ours_leads():
    points = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    weights = torch.rand(2000, generator=torch.Generator().manual_seed(1))
    for mass in (None, weights):
        ours, theirs = (
            kmeans(points, 10, sample_weight=mass, init=points[:10], max_iter=5, backend=backend)
            for backend in ("native", "faiss")
        )
        assert torch.allclose(ours.centroids, theirs.centroids, atol=1e-3)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match="pip install faiss-cpu"):
        nearest_centroid(torch.zeros(3, 2), torch.zeros(2, 2), backend="faiss")
