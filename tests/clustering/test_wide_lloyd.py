"""Lloyd's step for wide points equals the plain one, iteration by iteration."""

import torch

from cce.clustering.lloyd import PlainLloyd
from cce.clustering.wide_lloyd import WideLloyd


def test_each_step_equals_the_plain_one_while_centroids_move():
    points = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    ours, plain = WideLloyd(points, None), PlainLloyd(points, None)
    centroids = points[:50]
    for _ in range(8):
        mine, theirs = ours.assign(centroids), plain.assign(centroids)
        assert torch.equal(mine.nearest.long(), theirs.nearest)
        assert torch.equal(mine.squares, theirs.squares)
        centroids = (theirs.sums / theirs.totals[:, None]).float()
