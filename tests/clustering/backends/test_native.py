"""Compiled loops: searches in blocks and threads, steps that equal the plain ones, sums in parts of a fixed size."""

import numpy as np
import pytest
import torch

from cce.clustering.backends import native
from cce.clustering.backends.native import CellSearch, NativeLloyd, ScoreSearch
from cce.clustering.backends.torch import PlainLloyd, measure_all
from cce.clustering.search.gemm import Found
from cce.compiled import parallel_for


@pytest.mark.slow
def test_blocks_do_not_change_the_answer(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    points, centroids = torch.randn(5001, 3, generator=generator), torch.randn(90, 3, generator=generator)
    expected = measure_all(points, centroids)[0]
    for size in (64, 700, 5001):
        monkeypatch.setattr(native, "LARGEST_BLOCK", size)
        assert torch.equal(native.native_nearest(points, centroids), expected)


def test_a_search_inside_a_task_of_the_pool_ends(num_threads):
    num_threads(2)
    points = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(2))
    found = [torch.empty(0)] * 4

    def task(index):
        found[index] = native.native_nearest(points, points[:50])

    parallel_for(task, 4)
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "num_clusters"), [(4, 150), (3, 3), (1, 60)])
def test_each_step_equals_the_plain_one_while_centroids_move(width, num_clusters):
    points = torch.randn(3000, width, generator=torch.Generator().manual_seed(0))
    ours = NativeLloyd(points, None)
    plain = PlainLloyd(ours.points, None)
    centroids = points[:num_clusters]
    for _ in range(6):
        mine, theirs = ours.assign(centroids), plain.assign(centroids)
        assert torch.equal(mine.nearest.long(), theirs.nearest)
        assert torch.equal(mine.squares, theirs.squares)
        assert torch.allclose(mine.sums, theirs.sums)
        assert torch.equal(mine.totals, theirs.totals)
        centroids = (theirs.sums / theirs.totals.clamp(min=1)[:, None]).float()


def test_points_of_few_dimensions_lie_in_cells_and_others_go_to_products():
    assert isinstance(NativeLloyd(torch.zeros(9, 1), None).search, CellSearch)
    assert isinstance(NativeLloyd(torch.zeros(9, 4), None).search, CellSearch)
    assert isinstance(NativeLloyd(torch.zeros(9, 5), None).search, ScoreSearch)
    assert isinstance(NativeLloyd(torch.zeros(9, 4, dtype=torch.float64), None).search, ScoreSearch)


def test_each_step_of_wide_points_equals_the_plain_one_while_centroids_move():
    points = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    ours, plain = NativeLloyd(points, None), PlainLloyd(points, None)
    centroids = points[:50]
    for _ in range(8):
        mine, theirs = ours.assign(centroids), plain.assign(centroids)
        assert torch.equal(mine.nearest.long(), theirs.nearest)
        assert torch.equal(mine.squares, theirs.squares)
        centroids = (theirs.sums / theirs.totals[:, None]).float()


def test_sums_in_parts_equal_sums_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    rows, nearest = rng.standard_normal((1000, 5)).astype(np.float32), rng.integers(7, size=1000).astype(np.int32)
    weights, squares = torch.rand(1000), rng.random(1000).astype(np.float32)
    monkeypatch.setattr(native, "ROWS_IN_PART", 130)
    found = native.sum_clusters(torch.from_numpy(rows), weights, Found(nearest, squares), 8)
    mass = weights.double().numpy()
    expected = np.stack([(rows * mass[:, None])[nearest == cluster].sum(0) for cluster in range(8)])
    assert np.allclose(found.sums.numpy(), expected)
    assert np.allclose(found.totals.numpy(), np.bincount(nearest, mass, 8))
    assert np.isclose(found.inertia, (squares * mass).sum())
    assert found.totals[7] == 0
