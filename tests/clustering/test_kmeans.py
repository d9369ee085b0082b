"""k-means as scikit-learn's users expect it: its checklist, and the inputs that break others."""

import math

import pytest
import torch

from cce.clustering import KMeans, kmeans, nearest_centroid

OURS = ["torch", "native"]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def planted(num_clusters, num_points, width, *, spread=0.01, seed=0):
    """Points around well-parted centers: the grid corners of side 1; and the number of each point's center."""
    generator = seeded(seed)
    corners = torch.cartesian_prod(*[torch.arange(4.0)] * width).reshape(-1, width)
    centers = corners[torch.randperm(len(corners), generator=generator)[:num_clusters]]
    labels = torch.arange(num_points) % num_clusters
    return centers[labels] + spread * torch.randn(num_points, width, generator=generator), labels, centers


@pytest.mark.parametrize("backend", [*OURS, "faiss"])
def test_planted_clusters_are_recovered_from_a_point_of_each(backend):
    pytest.importorskip("torch" if backend in OURS else backend)
    points, labels, centers = planted(50, 5000, 3)
    fit = kmeans(points, 50, init=points[:50], max_iter=20, backend=backend)
    assert isinstance(fit, KMeans)
    assert torch.allclose(fit.centroids, centers, atol=0.01)
    assert torch.equal(nearest_centroid(points, fit.centroids), labels)


def test_k_means_plus_plus_finds_nearly_every_planted_cluster():
    points, _, centers = planted(30, 3000, 3)
    centroids = kmeans(points, 30, init="k-means++", generator=seeded(1)).centroids
    distances = torch.cdist(centers, centroids).min(1).values
    assert int((distances < 0.1).sum()) >= 28


@pytest.mark.slow
@pytest.mark.parametrize(("width", "num_clusters"), [(1, 20), (4, 300), (8, 64), (16, 40), (4, 2)])
def test_compiled_loops_and_torch_agree(width, num_clusters):
    points = torch.randn(2000, width, generator=seeded(width))
    weights = torch.rand(2000, generator=seeded(1))
    fits = [
        kmeans(points, num_clusters, sample_weight=weights, max_iter=8, generator=seeded(2), backend=backend)
        for backend in OURS
    ]
    assert torch.allclose(fits[0].centroids, fits[1].centroids, rtol=1e-6, atol=1e-6)
    assert fits[0].inertias == pytest.approx(fits[1].inertias, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("backend", OURS)
def test_inertia_never_rises_and_is_that_of_the_centroids_before_the_update(backend):
    points = torch.randn(4000, 4, generator=seeded(3))
    init = points[:100]
    fit = kmeans(points, 100, init=init, max_iter=12, backend=backend)
    assert len(fit.inertias) == 12
    assert list(fit.inertias) == sorted(fit.inertias, reverse=True)
    first = torch.cdist(points.double(), init.double()).min(1).values.square().sum()
    assert fit.inertias[0] == pytest.approx(first.item(), rel=1e-6)


@pytest.mark.parametrize("backend", OURS)
@pytest.mark.parametrize("num_distinct", [1, 3, 40])
def test_weights_count_as_repeats(backend, num_distinct):
    points = torch.randn(300, 3, generator=seeded(5))
    weights = torch.randint(0, 4, (300,), generator=seeded(6))
    init = points[:num_distinct] + 0.1
    weighted = kmeans(points, num_distinct, sample_weight=weights, init=init, max_iter=10, backend=backend)
    repeated = kmeans(points.repeat_interleave(weights, 0), num_distinct, init=init, max_iter=10, backend=backend)
    assert torch.allclose(weighted.centroids, repeated.centroids, atol=1e-5)
    assert weighted.inertias == pytest.approx(repeated.inertias, rel=1e-5)


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_points_of_no_weight_never_start_a_cluster(init):
    points = torch.arange(100.0)[:, None]
    weights = (torch.arange(100) < 10).float()
    centroids = kmeans(points, 10, sample_weight=weights, init=init, max_iter=0, generator=seeded(7)).centroids
    assert sorted(centroids.flatten().tolist()) == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("num_used", [1, 2, 5])
@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_any_number_of_threads_gives_the_same_bits(num_threads, num_used, init):
    points = torch.randn(70_000, 4, generator=seeded(8))
    num_threads(1)
    alone = kmeans(points, 64, init=init, max_iter=5, generator=seeded(9))
    num_threads(num_used)
    together = kmeans(points, 64, init=init, max_iter=5, generator=seeded(9))
    assert torch.equal(alone.centroids, together.centroids)
    assert alone.inertias == together.inertias


@pytest.mark.parametrize("backend", OURS)
def test_empty_clusters_move_to_badly_served_points(backend):
    points, _, _ = planted(20, 2000, 3)
    init = torch.full((20, 3), 100.0)
    init[0] = points.mean(0)
    fit = kmeans(points, 20, init=init, max_iter=50, backend=backend)
    assert int(torch.bincount(nearest_centroid(points, fit.centroids), minlength=20).min()) > 0
    assert fit.inertias[-1] < 0.2 * fit.inertias[0]


@pytest.mark.parametrize("backend", OURS)
def test_centroids_and_points_given_are_not_changed(backend):
    points = torch.randn(500, 4, generator=seeded(10))
    init = points[:20].clone()
    weights = torch.rand(500, generator=seeded(11))
    copies = points.clone(), init.clone(), weights.clone()
    fit = kmeans(points, 20, init=init, sample_weight=weights, max_iter=3, backend=backend)
    assert torch.equal(points, copies[0])
    assert torch.equal(init, copies[1])
    assert torch.equal(weights, copies[2])
    assert fit.centroids.data_ptr() not in (points.data_ptr(), init.data_ptr())


@pytest.mark.parametrize("backend", OURS)
@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(torch.ones(50, 4), id="constant"),
        pytest.param(torch.tensor([[1.0, 2.0]]), id="one point"),
        pytest.param(torch.arange(6.0).reshape(3, 2), id="fewer points than clusters"),
        pytest.param(torch.arange(5.0).repeat(40)[:, None], id="fewer distinct points than clusters"),
        pytest.param(torch.full((200, 3), 1e18), id="huge"),
        pytest.param(torch.full((200, 3), 1e-40) * torch.arange(200.0)[:, None], id="tiny"),
        pytest.param(torch.cat([torch.zeros(500, 2), torch.randn(3, 2)]), id="mostly one point"),
    ],
)
def test_awkward_points_give_finite_centroids(points, init, backend):
    fit = kmeans(points, 8, init=init, generator=seeded(12), backend=backend)
    assert fit.centroids.shape == (8, points.shape[1])
    assert bool(fit.centroids.isfinite().all())
    assert all(math.isfinite(value) for value in fit.inertias)


@pytest.mark.parametrize("backend", OURS)
def test_a_fit_stops_when_inertia_hardly_falls(backend):
    points = torch.randn(3000, 4, generator=seeded(13))
    patient = kmeans(points, 50, generator=seeded(14), backend=backend)
    hasty = kmeans(points, 50, generator=seeded(14), tol=0.01, backend=backend)
    falls = [1 - after / before for before, after in zip(hasty.inertias, hasty.inertias[1:], strict=False)]
    assert len(hasty.inertias) < len(patient.inertias)
    assert falls[-1] <= 0.01
    assert all(fall > 0.01 for fall in falls[:-1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_float_types_are_clustered_in_float32(dtype):
    points = torch.randn(400, 4, generator=seeded(15)).to(dtype)
    fit = kmeans(points, 10, generator=seeded(16))
    assert fit.centroids.dtype == torch.float32
    assert torch.equal(fit.centroids, kmeans(points.float(), 10, generator=seeded(16)).centroids)


@pytest.mark.parametrize("backend", [*OURS, "faiss"])
@pytest.mark.parametrize("width", [3, 12])
def test_float64_comes_out_as_float64(backend, width):
    pytest.importorskip("torch" if backend in OURS else backend)
    points = torch.randn(400, width, dtype=torch.float64, generator=seeded(15))
    weights = torch.rand(400, generator=seeded(16))
    fit = kmeans(points, 10, init=points[:10], sample_weight=weights, max_iter=200, backend=backend)
    assert fit.centroids.dtype == torch.float64
    if backend in OURS:  # each is the mean of its points, to the last digits of float64
        chosen = torch.nn.functional.one_hot(nearest_centroid(points, fit.centroids), 10) * weights.double()[:, None]
        means = chosen.T @ points / chosen.sum(0)[:, None]
        assert torch.allclose(fit.centroids, means, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("backend", OURS)
def test_a_point_that_fills_an_empty_cluster_leaves_its_old_one(backend):
    points = torch.tensor([[0.0], [1.0], [8.0]])
    fit = kmeans(points, 2, init=torch.tensor([[3.0], [100.0]]), max_iter=1, backend=backend)
    assert fit.centroids.flatten().tolist() == [0.5, 8.0]


def test_points_far_from_the_origin_keep_their_precision():
    points, _, centers = planted(20, 2000, 3)
    fit = kmeans(points + 1000, 20, init=points[:20] + 1000)
    assert torch.allclose(fit.centroids - 1000, centers, atol=0.01)


def begin(points, n_clusters, **options):
    """Where a fit begins."""
    return kmeans(points, n_clusters, max_iter=0, generator=seeded(0), **options).centroids


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_a_fit_begins_at_different_points_and_the_same_for_the_same_seed(init):
    points = torch.arange(50.0)[:, None]
    values = begin(points, 20, init=init).flatten().tolist()
    assert len(set(values)) == 20
    assert set(values) <= set(range(50))
    assert begin(points, 20, init=init).flatten().tolist() == values


def test_k_means_plus_plus_takes_a_far_point_at_once():
    points = torch.cat([torch.zeros(1000, 2), torch.full((1, 2), 1e6)])
    assert 1e6 in begin(points, 2, init="k-means++")


def test_fewer_points_than_clusters_are_taken_again():
    assert begin(torch.tensor([[1.0], [2.0]]), 5).flatten().tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert begin(torch.ones(3, 2), 5, init="k-means++").shape == (5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("backend", OURS)
def test_a_warm_start_goes_on_where_the_last_fit_ended_and_stops_where_inertia_has_settled(backend):
    points = torch.randn(5000, 4, generator=seeded(19))
    options = {"backend": backend, "generator": seeded(20)}
    whole = kmeans(points, 40, max_iter=30, **options | {"generator": seeded(20)})
    half = kmeans(points, 40, max_iter=15, **options | {"generator": seeded(20)})
    rest = kmeans(points, 40, init=half.centroids, max_iter=15, backend=backend)
    assert torch.equal(rest.centroids, whole.centroids)
    assert half.inertias + rest.inertias == whole.inertias
    settled = kmeans(points, 40, init=whole.centroids, tol=0.01, backend=backend)
    assert len(settled.inertias) == 2
