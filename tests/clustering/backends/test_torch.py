"""Lloyd's step in plain torch, on points whose clusters are plain to see."""

import pytest
import torch

from cce.clustering.backends.torch import PlainLloyd
from helpers.linear_tables import seeded


def test_sums_weights_and_inertia_of_two_clusters():
    points = torch.tensor([[0.0, 0.0], [0.0, 2.0], [10.0, 0.0]])
    step = PlainLloyd(points, torch.tensor([1.0, 3.0, 2.0])).assign(torch.tensor([[0.0, 1.0], [10.0, 1.0]]))
    assert step.nearest.tolist() == [0, 0, 1]
    assert step.sums.tolist() == [[0.0, 6.0], [20.0, 0.0]]
    assert step.totals.tolist() == [4.0, 2.0]
    assert step.squares.tolist() == [1.0, 1.0, 1.0]
    assert step.inertia == 6.0


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
