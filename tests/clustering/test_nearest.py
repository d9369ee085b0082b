"""Nearest centroids: equal to brute force, to the bit, over many shapes."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.clustering import nearest_centroid
from cce.clustering.backends import choose_backend
from cce.clustering.backends.torch import measure_all


def brute_force(points, centroids):
    """The definition in numpy: float32 steps from the first dimension to the last, ties to the lower index."""
    total = np.zeros((len(points), len(centroids)), np.float32)
    for d in range(points.shape[1]):
        difference = points[:, d : d + 1].numpy() - centroids[:, d].numpy()
        total += difference * difference
    return torch.from_numpy(total.argmin(1))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 9, 16, 32])
@pytest.mark.parametrize(("num_points", "num_centroids"), [(1, 1), (700, 1), (5, 900), (3000, 37), (3000, 640)])
def test_nearest_centroids_equal_brute_force(backend, width, num_points, num_centroids):
    generator = torch.Generator().manual_seed(width)
    points = torch.randn(num_points, width, generator=generator)
    centroids = torch.randn(num_centroids, width, generator=generator)
    assert torch.equal(nearest_centroid(points, centroids, backend=backend), brute_force(points, centroids))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    width=st.sampled_from([1, 2, 4, 7, 12]),
    num_points=st.integers(1, 400),
    num_centroids=st.integers(1, 100),
    num_values=st.sampled_from([1, 2, 3, 1000]),
    scale=st.sampled_from([1e-30, 1e-20, 1e-3, 1.0, 1e6, 1e14]),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
)
def test_every_search_equals_the_definition_on_grids_full_of_ties(
    seed, width, num_points, num_centroids, num_values, scale, offset
):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(num_values, (num_points, width), generator=generator) * scale + offset
    centroids = torch.randint(num_values, (num_centroids, width), generator=generator) * scale + offset
    expected = measure_all(points, centroids).nearest
    for backend in ("torch", "native"):
        assert torch.equal(nearest_centroid(points, centroids, backend=backend), expected)


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_any_number_of_threads_finds_the_same(num_threads):
    generator = torch.Generator().manual_seed(1)
    points, centroids = torch.randn(150_000, 4, generator=generator), torch.randn(300, 4, generator=generator)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = nearest_centroid(points, centroids)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, measure_all(points, centroids)[0])


def test_inputs_are_not_changed_and_may_be_strided_half_or_require_grad():
    generator = torch.Generator().manual_seed(2)
    points = torch.randn(8, 500, generator=generator).t().requires_grad_()
    centroids = torch.randn(40, 8, generator=generator)
    copies = points.detach().clone(), centroids.clone()
    found = nearest_centroid(points, centroids)
    assert torch.equal(points.detach(), copies[0])
    assert torch.equal(centroids, copies[1])
    assert torch.equal(found, brute_force(points.detach(), centroids))
    assert nearest_centroid(points.half(), centroids).shape == (500,)


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("width", [3, 12])
def test_float64_centroids_are_told_apart_where_float32_would_not(backend, width):
    points = torch.ones(5, width)
    centroids = torch.ones(3, width, dtype=torch.float64) + torch.tensor([3e-12, 1e-12, 2e-12])[:, None].double()
    assert nearest_centroid(points, centroids, backend=backend).tolist() == [1] * 5


def test_no_points_have_no_nearest():
    assert nearest_centroid(torch.empty(0, 4), torch.zeros(2, 4)).tolist() == []


@pytest.mark.parametrize(
    ("num_points", "width", "num_centroids", "expected"),
    [
        (2**20, 4, 64, "native"),
        (2**20, 8, 64, "native"),
        (2**20, 192, 64, "native"),
        (2**10, 5000, 2**13, "torch"),
        (2**9, 4, 64, "torch"),  # compiling would take longer
    ],
)
@pytest.mark.parametrize("has_faiss", [False, True])
def test_auto_takes_what_suits_the_points_whatever_is_installed(
    num_points, width, num_centroids, expected, has_faiss, monkeypatch
):
    pytest.importorskip("numba")
    if not has_faiss:
        monkeypatch.setitem(sys.modules, "faiss", None)
    assert choose_backend("auto", torch.zeros(1, 1).expand(num_points, width), num_centroids).name == expected


def test_auto_on_another_device_is_torch():
    assert choose_backend("auto", torch.zeros(2**20, 4, device="meta"), 64).name == "torch"
