"""Searches on a line: equal to the definition, to the bit, where rounding makes ties as well."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.clustering import kmeans, nearest_centroid
from cce.clustering.backends import native
from cce.clustering.backends.native import LineLloyd
from cce.clustering.backends.torch import PlainLloyd
from cce.clustering.search.plain import measure_all

pytestmark = pytest.mark.slow


def column(*values):
    return torch.tensor(values, dtype=torch.float32)[:, None]


def check(points, centroids, weights=None):
    """Both searches and the sums of a step equal the plain ones."""
    assert torch.equal(native.native_nearest(points, centroids), measure_all(points, centroids).nearest)
    ours = LineLloyd(points, weights)
    found, expected = ours.assign(centroids), PlainLloyd(ours.points, ours.weights).assign(centroids)
    assert torch.equal(ours.points, points.sort(0).values)
    assert torch.equal(found.nearest.long(), expected.nearest)
    assert torch.equal(found.squares, expected.squares)
    largest = float(points.abs().max()) * float(ours.weights.sum())
    assert torch.allclose(found.sums, expected.sums, rtol=1e-12, atol=1e-13 * largest)
    assert torch.allclose(found.totals, expected.totals, rtol=1e-12)
    assert np.isclose(found.inertia, expected.inertia, rtol=1e-6)


@pytest.mark.parametrize(
    ("num_points", "num_centroids"), [(1, 1), (1, 40), (700, 1), (5, 900), (3000, 37), (3000, 640)]
)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_nearest_centroids_and_sums_are_those_of_the_definition(num_points, num_centroids, is_weighted):
    generator = torch.Generator().manual_seed(num_points)
    points, centroids = (torch.randn(size, 1, generator=generator) for size in (num_points, num_centroids))
    check(points, centroids, torch.rand(num_points, generator=generator) + 0.1 if is_weighted else None)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_points=st.integers(1, 300),
    num_centroids=st.integers(1, 60),
    num_values=st.sampled_from([1, 2, 3, 9, 1000]),
    scale=st.sampled_from([1e-38, 1e-30, 1e-20, 1e-3, 1.0, 1e6, 1e14]),
    offset=st.sampled_from([0.0, 1.0, 1e4, -3e7]),
    far=st.sampled_from([1.0, 1e3, 1e9]),
)
def test_grids_full_of_ties_are_settled_by_the_lowest_index(
    seed, num_points, num_centroids, num_values, scale, offset, far
):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(num_values, (num_points, 1), generator=generator) * scale * 0.5 + offset
    points[::7] *= far
    points.clamp_(-1e18, 1e18)  # the largest that are allowed
    centroids = torch.randint(num_values, (num_centroids, 1), generator=generator) * scale + offset
    check(points, centroids)


def test_equal_distances_and_equal_centroids_go_to_the_lower_index():
    centroids = column(4, 2, 0, 2, 0)
    points = column(-1, 0, 0.9, 1, 1.1, 2, 3, 4, 9)
    expected = [2, 2, 2, 1, 1, 1, 0, 0, 0]
    assert native.native_nearest(points, centroids).tolist() == expected
    assert LineLloyd(points, None).assign(centroids).nearest.tolist() == expected


def test_centroids_that_a_far_point_cannot_tell_apart_are_one_to_it():
    centroids = column(1.5, 1.25, 1.0, 0.0)
    points = column(-1e9, 1e9, 2e9, 1.3)
    check(points, centroids)
    assert native.native_nearest(points, centroids).tolist() == [0, 0, 0, 1]


def test_neighbours_that_differ_in_the_last_bit_are_settled_one_by_one():
    generator = torch.Generator().manual_seed(0)
    close = torch.tensor([1.0]).nextafter(torch.tensor([2.0]))
    centroids = torch.cat([torch.tensor([1.0]), close, -close, torch.tensor([-1.0])])[:, None]
    points = torch.randn(2000, 1, generator=generator) * 3
    check(points, centroids)
    check(points, centroids.flip(0))


def test_parts_do_not_change_nearest_centroids(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    points, centroids = torch.randn(5001, 1, generator=generator), torch.randn(90, 1, generator=generator)
    monkeypatch.setattr(native, "ROWS_IN_PART", 700)
    monkeypatch.setattr(native, "SMALLEST_BLOCK", 64)
    check(points, centroids)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_bits(num_threads):
    points = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(2))
    weights = torch.rand(200_000, generator=torch.Generator().manual_seed(3))
    before = torch.get_num_threads()
    expected = kmeans(points, 300, init=points[:300], sample_weight=weights, max_iter=3, backend="native")
    torch.set_num_threads(num_threads)
    try:
        found = kmeans(points, 300, init=points[:300], sample_weight=weights, max_iter=3, backend="native")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found.centroids, expected.centroids)
    assert found.inertias == expected.inertias


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("num_points", "num_clusters"), [(3000, 50), (20, 64), (40, 40)])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_fit_is_that_of_plain_torch(dtype, num_points, num_clusters, is_weighted):
    generator = torch.Generator().manual_seed(4)
    points = torch.randn(num_points, 1, generator=generator).to(dtype)
    weights = torch.randint(4, (num_points,), generator=generator).float() if is_weighted else None
    start = points[torch.arange(num_clusters) % num_points].float()
    ours, plain = (
        kmeans(points, num_clusters, init=start, sample_weight=weights, max_iter=20, backend=backend)
        for backend in ("native", "torch")
    )
    assert torch.allclose(ours.centroids, plain.centroids, rtol=1e-6)
    assert np.allclose(ours.inertias, plain.inertias, rtol=1e-6, atol=1e-12)


def test_clusters_that_begin_empty_move_to_badly_served_points():
    points = column(*range(10)).repeat(50, 1)
    start = torch.zeros(10, 1)
    fitted = kmeans(points, 10, init=start, max_iter=50, backend="native")
    assert sorted(fitted.centroids.flatten().tolist()) == list(range(10))
    assert fitted.inertias[-1] == 0


def test_weights_count_as_repeats_and_points_of_no_weight_as_none():
    values, counts = column(0, 1, 5, 6, 100), torch.tensor([3.0, 1.0, 2.0, 2.0, 0.0])
    repeated = values.repeat_interleave(counts.long(), 0)
    weighted = kmeans(values, 2, init=column(0, 6), sample_weight=counts, backend="native")
    assert torch.equal(weighted.centroids, kmeans(repeated, 2, init=column(0, 6), backend="native").centroids)
    assert weighted.centroids.flatten().tolist() == [0.25, 5.5]


def test_all_centroids_equal_and_infinite_ranges_are_ordinary():
    points = column(-1e18, -1, 0, 1, 1e18)
    check(points, torch.zeros(5, 1))
    check(points, column(1e18, -1e18, 0))
    assert nearest_centroid(points, column(3.0), backend="native").tolist() == [0] * 5
