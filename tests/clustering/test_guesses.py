"""First guesses need not be right, but should be near."""

import numpy as np

from cce.clustering.compiled_nearest import all_centers, new_state
from cce.clustering.groups import sort_points
from cce.clustering.guesses import guess_nearest


def test_most_guesses_are_nearly_as_near_as_the_nearest():
    rng = np.random.default_rng(0)
    rows, centers = (
        rng.standard_normal((40_000, 4)).astype(np.float32),
        rng.standard_normal((100, 4)).astype(np.float32),
    )
    _, taken, groups = sort_points(rows)
    state = new_state(taken)
    guess_nearest(state, groups, all_centers(centers), 0, len(groups.parents.low), (0,) * 4)
    distances = np.sqrt(np.square(taken[:, None] - centers).sum(2))
    guessed = distances[np.arange(len(taken)), state.nearest]
    assert np.median(guessed / distances.min(1)) < 1.2


def test_one_centroid_is_always_guessed():
    _, taken, groups = sort_points(np.random.default_rng(1).standard_normal((500, 4)).astype(np.float32))
    state = new_state(taken)
    state.nearest[:] = 9
    guess_nearest(state, groups, all_centers(np.full((1, 4), 7, np.float32)), 0, len(groups.parents.low), (0,) * 4)
    assert not state.nearest.any()
