"""Filtering by half-spaces: whatever it discards is nowhere the nearest."""

import numpy as np
import pytest
import torch

from cce.clustering.backends.torch import measure_all
from cce.clustering.search.cells import build_split_tree, sort_into_cells
from cce.clustering.search.filtering import Candidates, Found, assign_cells, filter_candidates, new_lists


def searched(rows, centers):
    """What the search finds for the rows, in their own order."""
    cells = sort_into_cells(rows, build_split_tree(rows, len(rows)))
    found = Found(np.empty(len(rows), np.int32), np.empty(len(rows), np.float32))
    assign_cells(cells, 0, len(cells.starts) - 1, np.ascontiguousarray(centers.T), found)
    back = np.argsort(cells.order)
    return found.nearest[back], found.squares[back]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e17])
@pytest.mark.parametrize("kind", ["gaussian", "grid", "equal", "far away", "skewed"])
@pytest.mark.parametrize(("num_rows", "num_centers"), [(1, 1), (300, 70), (30_000, 1), (30_000, 300)])
def test_equals_the_definition(scale, kind, num_rows, num_centers):
    rng = np.random.default_rng(0)
    both = rng.standard_normal((num_rows + num_centers, 4))
    if kind == "grid":  # full of ties
        both = np.round(2 * both)
    elif kind == "equal":
        both = np.ones_like(both)
    elif kind == "far away":  # the differences are lost in rounding
        both = 1 + both * 1e-6
    elif kind == "skewed":
        both = np.exp(3 * both) / 1e6
    rows, centers = np.split((scale * both).astype(np.float32), [num_rows])
    expected = measure_all(torch.from_numpy(rows), torch.from_numpy(centers))
    for found, right in zip(searched(rows, centers), expected, strict=True):
        assert np.array_equal(found, right.numpy())


@pytest.mark.slow
def test_few_candidates_are_left_for_a_small_box():
    centers = np.random.default_rng(1).random((4, 1000), np.float32)
    candidates = Candidates(np.arange(1000, dtype=np.int32), centers, np.full(1, 1000, np.int32))
    near = Candidates(np.empty_like(candidates.ids), np.empty_like(centers), np.zeros(1, np.int32))
    _, scratch = new_lists(centers, 1)
    filter_candidates(np.full(4, 0.5, np.float32), np.full(4, 0.52, np.float32), candidates, near, scratch)
    ids = near.ids[: near.length[0]]
    assert 1 <= len(ids) < 20
    assert (np.diff(ids) > 0).all()
    assert np.array_equal(near.columns[:, : len(ids)], centers[:, ids])
