"""Lloyd's step in plain torch, on points whose clusters are plain to see."""

import torch

from cce.clustering.lloyd import PlainLloyd


def test_sums_weights_and_inertia_of_two_clusters():
    points = torch.tensor([[0.0, 0.0], [0.0, 2.0], [10.0, 0.0]])
    step = PlainLloyd(points, torch.tensor([1.0, 3.0, 2.0])).assign(torch.tensor([[0.0, 1.0], [10.0, 1.0]]))
    assert step.nearest.tolist() == [0, 0, 1]
    assert step.sums.tolist() == [[0.0, 6.0], [20.0, 0.0]]
    assert step.totals.tolist() == [4.0, 2.0]
    assert step.squares.tolist() == [1.0, 1.0, 1.0]
    assert step.inertia == 6.0
