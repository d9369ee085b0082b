"""Plain torch measures all distances, and its step sums what is plain to see."""

import subprocess
import sys

import pytest
import torch

from cce.clustering.backends.torch import PlainLloyd, measure_all
from helpers.linear_tables import seeded


def points_and_centroids(num_points, num_centroids, width, seed=0):
    generator = seeded(seed)
    points = torch.randn(num_points, width, generator=generator)
    return points, points[torch.randperm(num_points, generator=generator)[:num_centroids]] + 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 4, 70])
def test_it_equals_a_matrix_of_all_distances(width, dtype):
    points, centroids = (each.to(dtype) for each in points_and_centroids(201, 400, width))
    found, squares = measure_all(points, centroids), (points[:, None] - centroids).square().sum(2)
    torch.testing.assert_close(found.squares, squares.min(1).values)
    torch.testing.assert_close(squares.gather(1, found.nearest[:, None]).squeeze(1), found.squares)


def test_of_equal_centroids_the_first_is_chosen():
    points, centroids = points_and_centroids(500, 40, 4)
    found = measure_all(points, torch.cat([centroids, centroids]))
    assert torch.equal(found.nearest, measure_all(points, centroids).nearest)


def test_any_number_of_threads_gives_the_same(num_threads):
    points, centroids = points_and_centroids(4000, 300, 4)
    num_threads(1)
    alone = measure_all(points, centroids)
    num_threads(3)
    found = measure_all(points, centroids)
    assert torch.equal(found.nearest, alone.nearest)
    assert torch.equal(found.squares, alone.squares)


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
