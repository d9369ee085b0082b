"""The cells of a tree: every point once, on its own side of every cut."""

import numpy as np
import pytest

from cce.clustering.cells import find_cells, plant_tree, sort_into_cells


def some_rows(kind, num_rows):
    rows = np.random.default_rng(0).standard_normal((num_rows, 4)).astype(np.float32)
    return {"gaussian": rows, "equal": np.ones_like(rows), "skewed": np.exp(8 * rows), "few": np.round(rows)}[kind]


@pytest.mark.parametrize("kind", ["gaussian", "equal", "skewed", "few"])
@pytest.mark.parametrize("num_rows", [1, 200, 30_000])
def test_every_point_lies_once_in_the_cell_that_the_cuts_lead_to(kind, num_rows):
    rows = some_rows(kind, num_rows)
    tree = plant_tree(rows, num_rows)
    cells = sort_into_cells(rows, tree, (0,) * 4)
    assert np.array_equal(np.sort(cells.order), np.arange(num_rows))
    assert np.array_equal(cells.rows, rows[cells.order])
    assert cells.starts[0] == 0
    assert cells.starts[-1] == num_rows
    cell = np.repeat(np.arange(len(tree.values)), np.diff(cells.starts))
    node = cell + len(tree.values)
    while node[0] > 1:
        parent = node // 2
        is_right = cells.rows[np.arange(num_rows), tree.dimensions[parent].astype(int)] >= tree.values[parent]
        assert np.array_equal(is_right, node % 2 == 1)
        node = parent


def test_cells_of_points_that_are_spread_as_the_sample_are_of_like_size():
    rows = some_rows("gaussian", 100_000)
    sizes = np.bincount(find_cells(rows, plant_tree(rows, len(rows))))
    assert len(sizes) == 1024
    assert np.square(sizes).sum() / sizes.sum() < 2 * sizes.mean()


def test_narrow_rows_are_padded_for_the_tree():
    assert plant_tree(np.random.default_rng(1).random((5000, 2), np.float32), 5000).dimensions.max() < 2
