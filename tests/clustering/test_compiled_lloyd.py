"""Lloyd's compiled step equals the plain one, iteration by iteration."""

import pytest
import torch

from cce.clustering.compiled_lloyd import BoxLloyd, compiled_lloyd
from cce.clustering.lloyd import PlainLloyd
from cce.clustering.wide_lloyd import WideLloyd


@pytest.mark.parametrize(("width", "num_clusters"), [(4, 150), (3, 3), (8, 60)])
def test_each_step_equals_the_plain_one_while_centroids_move(width, num_clusters):
    points = torch.randn(3000, width, generator=torch.Generator().manual_seed(0))
    ours = BoxLloyd(points, None)
    plain = PlainLloyd(ours.points, None)
    centroids = points[:num_clusters]
    for _ in range(6):
        mine, theirs = ours.assign(centroids), plain.assign(centroids)
        assert torch.equal(mine.nearest.long(), theirs.nearest)
        assert torch.equal(mine.squares, theirs.squares)
        assert torch.allclose(mine.sums, theirs.sums)
        assert torch.equal(mine.totals, theirs.totals)
        centroids = (theirs.sums / theirs.totals.clamp(min=1)[:, None]).float()


def test_a_centroid_that_leaps_far_is_noticed():
    points = torch.randn(3000, 4, generator=torch.Generator().manual_seed(1))
    ours = BoxLloyd(points, None)
    plain = PlainLloyd(ours.points, None)
    centroids = points[:40].clone()
    for row in (3, 17, 39):
        assert torch.equal(ours.assign(centroids).nearest.long(), plain.assign(centroids).nearest)
        centroids[row] = -centroids[row] * 2
    assert torch.equal(ours.assign(centroids).nearest.long(), plain.assign(centroids).nearest)


def test_narrow_points_go_to_boxes_and_wide_ones_to_products():
    assert isinstance(compiled_lloyd(torch.zeros(9, 8), None), BoxLloyd)
    assert isinstance(compiled_lloyd(torch.zeros(9, 9), None), WideLloyd)
