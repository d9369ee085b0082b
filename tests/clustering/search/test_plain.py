"""The search of plain torch equals its own definition to the bit, and does much less work."""

import subprocess
import sys

import pytest
import torch

from cce.clustering.search import plain
from cce.clustering.search.plain import PlainSearch, Scores, measure_all
from cce.compiled import parallel_for
from helpers.linear_tables import seeded


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(plain, "FEW_NUMBERS", 0)


def plain_search(points, centroids):
    return PlainSearch(points)(centroids)


def points_and_centroids(num_points, num_centroids, width, seed=0):
    generator = seeded(seed)
    points = torch.randn(num_points, width, generator=generator)
    return points, points[torch.randperm(num_points, generator=generator)[:num_centroids]] + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 4, 8, 16, 70])
@pytest.mark.parametrize("num_points", [701, 3000])
def test_it_equals_the_definition(width, num_points):
    points, centroids = points_and_centroids(num_points, 700, width)
    found, expected = plain_search(points, centroids), measure_all(points, centroids)
    assert torch.equal(found.nearest, expected.nearest)
    assert torch.equal(found.squares, expected.squares)


def test_ties_and_near_ties_are_decided_by_the_definition():
    points, centroids = points_and_centroids(500, 40, 4)
    points = points + 100  # scores far from the origin round much more than distances
    centroids = torch.cat([centroids, centroids, centroids + 1e-6]) + 100
    found = plain_search(points, centroids)
    assert torch.equal(found.nearest, measure_all(points, centroids).nearest)
    assert (found.nearest[(points[:, None] == centroids).all(2).any(1)] < 40).all()


@pytest.mark.parametrize("scale", [1e-23, 1e-19, 1e17])
def test_scores_that_underflow_or_overflow_do_not_decide(scale):
    points, centroids = points_and_centroids(400, 30, 5)
    found, expected = plain_search(points * scale, centroids * scale), measure_all(points * scale, centroids * scale)
    assert torch.equal(found.nearest, expected.nearest)
    assert torch.equal(found.squares, expected.squares)


def test_one_centroid_is_nearest_to_all():
    for width in (3, 30):
        assert plain_search(torch.randn(1000, width), torch.zeros(1, width)).nearest.tolist() == [0] * 1000


def test_each_search_starts_from_the_last_and_is_exact():
    points, centroids = points_and_centroids(4000, 60, 4)
    search = PlainSearch(points)
    for step in range(6):
        moved = centroids + step * 0.3 * torch.randn(centroids.shape, generator=seeded(step))
        found, expected = search(moved), measure_all(points, moved)
        assert torch.equal(found.nearest, expected.nearest)
        assert torch.equal(found.squares, expected.squares)


@pytest.mark.slow
def test_few_dimensions_are_pruned(monkeypatch):
    """Otherwise the search would be right and slow."""
    points, centroids = points_and_centroids(20_000, 1000, 4)
    pairs, settle = [], Scores._settle
    monkeypatch.setattr(Scores, "_settle", lambda self, rows, s: pairs.append(s.numel()) or settle(self, rows, s))
    search = PlainSearch(points)
    search(centroids)
    pairs.clear()
    search(centroids)
    assert sum(pairs) < 0.25 * 20_000 * 1000


def test_any_number_of_threads_gives_the_same_and_starts_no_threads_of_torch(monkeypatch, num_threads):
    points, centroids = points_and_centroids(4000, 300, 4)
    num_threads(1)
    alone, sizes, settle = plain_search(points, centroids), [], Scores._settle
    monkeypatch.setattr(Scores, "_settle", lambda self, rows, s: sizes.append(s.numel()) or settle(self, rows, s))
    for threads in (2, 3):
        num_threads(threads)
        found = plain_search(points, centroids)
        assert torch.equal(found.nearest, alone.nearest)
        assert torch.equal(found.squares, alone.squares)
    assert max(sizes) <= plain.PAIRS_IN_SMALL_BLOCK


@pytest.mark.slow
def test_a_search_inside_a_task_of_the_pool_ends(num_threads):
    num_threads(2)
    points, centroids = points_and_centroids(4000, 300, 4)
    found = {}
    parallel_for(lambda index: found.update({index: plain_search(points, centroids)}), 4)
    assert all(torch.equal(one.nearest, found[0].nearest) for one in found.values())


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
