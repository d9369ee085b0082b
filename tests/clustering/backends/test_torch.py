"""Plain torch: its search equals its own definition to the bit; its step sums what is plain to see."""

import subprocess
import sys

import pytest
import torch

from cce.clustering.backends import torch as plain
from cce.clustering.backends.torch import PlainLloyd, measure_all, search
from helpers.linear_tables import seeded


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(plain, "FEW_VALUES", 0)


def points_and_centroids(num_points, num_centroids, width, seed=0):
    generator = seeded(seed)
    points = torch.randn(num_points, width, generator=generator)
    return points, points[torch.randperm(num_points, generator=generator)[:num_centroids]] + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 4, 16, 70])
def test_it_equals_the_definition(width, dtype):
    points, centroids = (each.to(dtype) for each in points_and_centroids(2001, 700, width))
    found, expected = search(points, centroids), measure_all(points, centroids)
    assert torch.equal(found.nearest, expected.nearest)
    assert torch.equal(found.squares, expected.squares)


def test_ties_and_near_ties_are_decided_by_the_definition():
    points, centroids = points_and_centroids(500, 40, 4)
    points = points + 100  # scores far from the origin round much more than distances
    centroids = torch.cat([centroids, centroids, centroids + 1e-6]) + 100
    found = search(points, centroids)
    assert torch.equal(found.nearest, measure_all(points, centroids).nearest)
    assert (found.nearest[(points[:, None] == centroids).all(2).any(1)] < 40).all()


@pytest.mark.parametrize("scale", [1e-23, 1e-19, 1e17])
def test_scores_that_underflow_or_overflow_do_not_decide(scale):
    points, centroids = points_and_centroids(400, 30, 5)
    found, expected = search(points * scale, centroids * scale), measure_all(points * scale, centroids * scale)
    assert torch.equal(found.nearest, expected.nearest)
    assert torch.equal(found.squares, expected.squares)


def test_any_number_of_threads_gives_the_same_and_starts_no_threads_of_torch(monkeypatch, num_threads):
    points, centroids = points_and_centroids(4000, 300, 4)
    num_threads(1)
    alone, sizes, addmm = search(points, centroids), [], torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda *a, **o: sizes.append(len(a[1]) * 300) or addmm(*a, **o))
    for threads in (2, 3):
        num_threads(threads)
        found = search(points, centroids)
        assert torch.equal(found.nearest, alone.nearest)
        assert torch.equal(found.squares, alone.squares)
    assert 0 < max(sizes) <= plain.PAIRS_IN_SMALL_BLOCK


MEMORY = """
import resource, torch
from cce.clustering import kmeans
points = torch.randn(60_000, 4)
kmeans(points[:100], 10, backend="torch", max_iter=2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kmeans(points, 3_000, max_iter=2, backend="torch")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_is_bounded():
    """All distances at once would take 720 MB."""
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300, check=True)
    assert int(result.stdout) < 120_000  # KB


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_the_points_of_each_cluster(weighted):
    points = torch.randn(4000, 4, generator=seeded(0))
    centroids = points[:60] + 0.01
    weights = torch.rand(4000, generator=seeded(1)) if weighted else torch.ones(4000)
    step = PlainLloyd(points, weights if weighted else None).assign(centroids)
    chosen = torch.nn.functional.one_hot(step.nearest, 60).double() * weights[:, None]
    torch.testing.assert_close(step.sums, chosen.T @ points.double())
    torch.testing.assert_close(step.totals, chosen.sum(0))
