"""The search of plain torch equals its own definition to the bit, and what it says of other centroids is true."""

import subprocess
import sys

import pytest
import torch

from cce.clustering import plain
from cce.clustering.lloyd import PlainLloyd
from cce.clustering.plain import Scores, measure_all, plain_search
from cce.compiled import in_worker, parallel_for
from helpers.linear_tables import seeded


def points_and_centroids(num_points, num_centroids, width, seed=0):
    generator = seeded(seed)
    points = torch.randn(num_points, width, generator=generator)
    return points, points[torch.randperm(num_points, generator=generator)[:num_centroids]] + 0.01


@pytest.mark.parametrize("width", [1, 4, 16, 70])
def test_it_equals_the_definition(width):
    points, centroids = points_and_centroids(3000, 700, width)
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


@pytest.mark.parametrize("search", [plain_search, measure_all])
def test_gaps_are_lower_bounds_on_the_distance_to_every_other_centroid(search):
    points, centroids = points_and_centroids(600, 50, 6)
    distances = torch.cdist(points.double(), centroids.double()).sort().values
    gaps = search(points, centroids).gaps.double()
    assert (gaps <= distances[:, 1]).all()
    assert (gaps > 0.99 * distances[:, 1] - 1e-3).float().mean() > 0.95  # and not by far


def test_one_centroid_is_nearest_to_all():
    found = plain_search(torch.randn(10, 3), torch.zeros(1, 3))
    assert found.nearest.tolist() == [0] * 10
    assert torch.isinf(found.gaps).all()


def test_worker_threads_use_small_blocks_and_give_the_same(monkeypatch, num_threads):
    num_threads(2)
    points, centroids = points_and_centroids(2000, 300, 4)
    alone, found, sizes, search = plain_search(points, centroids), {}, {True: [], False: []}, Scores.search
    monkeypatch.setattr(Scores, "search", lambda self, rows: sizes[in_worker()].append(len(rows)) or search(self, rows))
    parallel_for(lambda index: found.update({index: plain_search(points, centroids)}), 8)
    assert all(torch.equal(one.nearest, alone.nearest) for one in found.values())
    assert max(sizes[True]) == plain.PAIRS_IN_SMALL_BLOCK // 300 < max(sizes[False])


@pytest.mark.parametrize("weighted", [False, True])
def test_iterations_that_skip_points_equal_iterations_that_search_all(weighted):
    points, centroids = points_and_centroids(4000, 60, 4)
    weights = torch.rand(4000, generator=seeded(1)) if weighted else None
    lloyd = PlainLloyd(points, weights)
    for _ in range(12):
        step, fresh = lloyd.assign(centroids), PlainLloyd(points, weights).assign(centroids)
        assert torch.equal(step.nearest, fresh.nearest)
        assert torch.equal(step.squares, fresh.squares)
        assert torch.equal(step.sums, fresh.sums)
        assert step.inertia == fresh.inertia
        centroids = (step.sums / step.totals.clamp(min=1e-9)[:, None]).float()


def test_settled_points_are_not_searched_again(monkeypatch):
    points, centroids = points_and_centroids(2000, 8, 2)
    points = centroids[torch.arange(2000) % 8] + points / 1000
    lloyd, searched = PlainLloyd(points, None), []
    monkeypatch.setattr(
        "cce.clustering.lloyd.plain_search", lambda p, c, _: searched.append(len(p)) or plain_search(p, c)
    )
    lloyd.assign(centroids)
    lloyd.assign(centroids + 1e-5)
    assert searched == [2000]


MEMORY = """
import resource, torch
from cce.clustering import kmeans
points = torch.randn(60_000, 4)
kmeans(points[:100], 10, backend="torch", num_iterations=2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kmeans(points, 3_000, num_iterations=2, backend="torch")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_bounded():
    """All distances at once would take 720 MB."""
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300, check=True)
    assert int(result.stdout) < 120_000  # KB
