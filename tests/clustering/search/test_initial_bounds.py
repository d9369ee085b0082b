"""Initial bounds need not be tight, but should be near."""

import numpy as np
import pytest

from cce.clustering.search.bounds import all_centers, new_state
from cce.clustering.search.initial_bounds import set_initial_bounds
from cce.clustering.search.kd_tree import sort_points


@pytest.mark.slow
def test_most_initial_centroids_are_nearly_as_near_as_the_nearest():
    rng = np.random.default_rng(0)
    rows, centers = (
        rng.standard_normal((40_000, 4)).astype(np.float32),
        rng.standard_normal((100, 4)).astype(np.float32),
    )
    _, taken, tree = sort_points(rows)
    state = new_state(taken)
    set_initial_bounds(state, tree, all_centers(centers), 0, len(tree.parents.low), (0,) * 4)
    distances = np.sqrt(np.square(taken[:, None] - centers).sum(2))
    found = distances[np.arange(len(taken)), state.nearest]
    assert np.median(found / distances.min(1)) < 1.2


def test_a_single_centroid_is_always_found():
    _, taken, tree = sort_points(np.random.default_rng(1).standard_normal((500, 4)).astype(np.float32))
    state = new_state(taken)
    state.nearest[:] = 9
    set_initial_bounds(state, tree, all_centers(np.full((1, 4), 7, np.float32)), 0, len(tree.parents.low), (0,) * 4)
    assert not state.nearest.any()
