"""Every backend answers alike, and a new one needs nothing but its name in the registry."""

import pytest
import torch

from cce.clustering import ClusterSettings, kmeans, nearest_centroid
from cce.clustering.backends import BACKENDS, MODULES, Backend, choose_backend
from cce.clustering.backends.torch import PlainLloyd


def planted():
    corners = torch.cartesian_prod(*[torch.arange(3.0)] * 3)
    labels = torch.arange(2700) % 27
    return corners[labels] + 0.01 * torch.randn(2700, 3, generator=torch.Generator().manual_seed(0)), labels


def test_every_module_has_a_backend_of_its_name():
    assert tuple(BACKENDS) == MODULES == ("torch", "native", "faiss")
    assert all(backend.name == name for name, backend in BACKENDS.items())
    assert all((backend.lloyd is None) != (backend.fit is None) for backend in BACKENDS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_every_backend_recovers_planted_clusters(name):
    if name == "faiss":
        pytest.importorskip(name)
    points, labels = planted()
    fit = kmeans(points, 27, init=points[:27], max_iter=5, backend=name)
    assert torch.equal(nearest_centroid(points, fit.centroids, backend=name), labels)
    weights = torch.rand(2700, generator=torch.Generator().manual_seed(1))
    weighted = kmeans(points, 27, init=points[:27], sample_weight=weights, max_iter=5, backend=name)
    assert not torch.equal(weighted.centroids, fit.centroids)
    assert torch.allclose(weighted.centroids, fit.centroids, atol=0.01)


def test_a_new_backend_is_known_by_its_name(monkeypatch):
    called = []

    def nearest(points, centroids):
        called.append(len(points))
        return torch.cdist(points, centroids).argmin(1)

    monkeypatch.setitem(BACKENDS, "cdist", Backend("cdist", nearest=nearest, lloyd=PlainLloyd))
    points, labels = planted()
    fit = kmeans(points, 27, init=points[:27], backend="cdist")
    assert torch.equal(nearest_centroid(points, fit.centroids, backend="cdist"), labels)
    assert called == [2700]
    assert ClusterSettings(backend="cdist").backend == "cdist"
    with pytest.raises(ValueError, match="one of auto, torch, native, faiss, cdist; got 'cuml'"):
        choose_backend("cuml", points, 27)
