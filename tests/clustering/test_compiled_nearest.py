"""The compiled search in blocks and threads; that it equals brute force is tested in test_nearest.py."""

import pytest
import torch

from cce.clustering import compiled_nearest as room
from cce.clustering.plain import measure_all
from cce.compiled import parallel_for


@pytest.mark.slow
def test_blocks_do_not_change_the_answer(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    points, centroids = torch.randn(5001, 3, generator=generator), torch.randn(90, 3, generator=generator)
    expected = measure_all(points, centroids)[0]
    for size in (1, 700, 5001):
        monkeypatch.setattr(room, "LARGEST_BLOCK", size if size > 1 else 64)
        monkeypatch.setattr(room, "SMALLEST_BLOCK", min(size, 64))
        assert torch.equal(room.compiled_nearest(points, centroids), expected)


def test_many_points_for_each_centroid_are_searched_in_cells_with_the_same_answer(monkeypatch, num_threads):
    num_threads(2)
    generator = torch.Generator().manual_seed(3)
    points, centroids = torch.randn(50_001, 3, generator=generator), torch.randn(90, 3, generator=generator)
    expected = measure_all(points, centroids)[0]
    monkeypatch.setattr(room, "_search_boxes", None)
    for size in (3000, 1 << 20):
        monkeypatch.setattr(room, "LARGEST_BLOCK", size)
        assert torch.equal(room.compiled_nearest(points, centroids), expected)


def test_centroids_are_packed_close_together_but_keep_their_numbers():
    rows = torch.randn(40, 4, generator=torch.Generator().manual_seed(1)).numpy()
    centers = room.all_centers(rows)
    assert sorted(centers.ids[:40].tolist()) == list(range(40))
    assert centers.ids.shape == (48,)


def test_a_search_inside_a_task_of_the_pool_ends(num_threads):
    num_threads(2)
    points = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(2))
    found = [torch.empty(0)] * 4

    def task(index):
        found[index] = room.compiled_nearest(points, points[:50])

    parallel_for(task, 4)
    assert all(torch.equal(one, found[0]) for one in found)
