"""The bounded search, from good initial bounds and bad ones."""

import numpy as np
import pytest
import torch

from cce.clustering.search.bounds import all_centers, new_state, search
from cce.clustering.search.kd_tree import sort_points
from cce.clustering.search.plain import measure_all


@pytest.mark.slow
@pytest.mark.parametrize("guess", ["worst", "first", "random"])
@pytest.mark.parametrize("margin", [1.0, 1.25])
def test_any_initial_bound_leads_to_the_nearest_centroid_and_true_lower_bounds(guess, margin):
    rng = np.random.default_rng(0)
    rows, centers = rng.standard_normal((3000, 4)).astype(np.float32), rng.standard_normal((200, 4)).astype(np.float32)
    _, taken, tree = sort_points(rows)
    state = new_state(taken)
    distances = np.sqrt(np.square(taken[:, None] - centers).sum(2))
    guesses = {"worst": distances.argmax(1), "first": 0, "random": rng.integers(200, size=3000)}
    state.nearest[:] = guesses[guess]
    search(state, all_centers(centers), tree, 0, len(tree.parents.low), margin, (0,) * 4)
    nearest, squares = measure_all(torch.from_numpy(taken), torch.from_numpy(centers))
    assert np.array_equal(state.nearest, nearest.numpy())
    assert np.array_equal(state.squares, squares.numpy())
    others = np.sort(distances, 1)[:, 1]
    assert (state.lower <= others * (1 + 1e-6)).all()


def test_points_whose_lower_bounds_protect_them_are_not_searched():
    rows = np.zeros((10, 4), np.float32)
    centers = np.array([[1, 0, 0, 0], [0.5, 0, 0, 0]], np.float32)
    _, taken, tree = sort_points(rows)
    state = new_state(taken)
    state.lower[:] = 5  # a false promise, to see that it is believed
    search(state, all_centers(centers), tree, 0, 1, 10.0, (0,) * 4)
    assert state.nearest.tolist() == [0] * 10
    moved = all_centers(centers, np.array([0, 4.5], np.float32))  # now a centroid has moved as far as the bound
    search(state, moved, tree, 0, 1, 10.0, (0,) * 4)
    assert state.nearest.tolist() == [1] * 10
