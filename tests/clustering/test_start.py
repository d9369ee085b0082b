"""Where k-means begins."""

import pytest
import torch

from cce.clustering.start import starting_centroids


def begin(points, num_clusters, **options):
    arguments = {"weights": None, "start": "random", "generator": torch.Generator().manual_seed(0), **options}
    return starting_centroids(points, num_clusters, **arguments)


@pytest.mark.parametrize("start", ["random", "k-means++"])
def test_starts_are_different_points_and_the_same_for_the_same_seed(start):
    points = torch.arange(50.0)[:, None]
    values = begin(points, 20, start=start).flatten().tolist()
    assert len(set(values)) == 20
    assert set(values) <= set(range(50))
    assert begin(points, 20, start=start).flatten().tolist() == values


def test_k_means_plus_plus_takes_a_far_point_at_once():
    points = torch.cat([torch.zeros(1000, 2), torch.full((1, 2), 1e6)])
    assert 1e6 in begin(points, 2, start="k-means++")


def test_fewer_points_than_clusters_are_taken_again():
    assert begin(torch.tensor([[1.0], [2.0]]), 5).flatten().tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert begin(torch.ones(3, 2), 5, start="k-means++").shape == (5, 2)


def test_given_centroids_are_copied():
    given = torch.zeros(2, 3)
    begin(torch.ones(4, 3), 2, start=given).add_(1)
    assert not given.any()
