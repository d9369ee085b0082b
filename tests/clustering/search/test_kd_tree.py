"""k-d trees: every point once, in a box that holds it, on its own side of every cut."""

import itertools

import numpy as np
import pytest

from cce.clustering.search.kd_tree import (
    build_split_tree,
    find_cells,
    sort_into_cells,
    sort_into_leaves,
    sort_points,
)


def some_rows(kind, num_rows, width):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_rows, width)).astype(np.float32)
    if kind == "equal":
        rows[:] = 1
    elif kind == "skewed":
        rows = np.exp(8 * rows)
    elif kind == "few values":
        rows = np.round(rows)
    return rows


@pytest.mark.parametrize("kind", ["gaussian", "equal", "skewed", "few values"])
@pytest.mark.parametrize(("num_rows", "width"), [(1, 4), (700, 4), (70_000, 4), (5000, 8)])
def test_every_point_lies_once_in_a_small_box(kind, num_rows, width):
    rows = some_rows(kind, num_rows, width)
    order, taken, (leaves, parents) = sort_points(rows)
    assert np.array_equal(np.sort(order), np.arange(num_rows))
    assert np.array_equal(taken, rows[order])
    assert leaves.starts[0] == parents.starts[0] == 0
    assert leaves.starts[-1] == num_rows
    assert parents.starts[-1] == len(leaves.low)
    sizes = np.diff(leaves.starts)
    assert sizes.min() >= 1
    assert sizes.max() <= 512
    leaf = np.repeat(np.arange(len(sizes)), sizes)
    assert ((leaves.low[leaf] <= taken) & (taken <= leaves.high[leaf])).all()
    parent = np.repeat(np.arange(len(parents.low)), np.diff(parents.starts))
    assert ((parents.low[parent] <= leaves.low) & (leaves.high <= parents.high[parent])).all()


def test_leaves_part_the_line_into_intervals():
    rows = np.random.default_rng(1).permutation(1000).astype(np.float32)[:, None]
    order, leaves, _ = sort_into_leaves(rows, 50, 200)
    pieces = [rows[order[begin:end], 0] for begin, end in itertools.pairwise(leaves)]
    assert all(before.max() < after.min() for before, after in itertools.pairwise(pieces))


@pytest.mark.parametrize("kind", ["gaussian", "equal", "skewed", "few values"])
@pytest.mark.parametrize("num_rows", [1, 200, 30_000])
def test_every_point_lies_once_in_the_cell_that_the_cuts_lead_to(kind, num_rows):
    rows = some_rows(kind, num_rows, 4)
    tree = build_split_tree(rows, num_rows)
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
    rows = some_rows("gaussian", 100_000, 4)
    sizes = np.bincount(find_cells(rows, build_split_tree(rows, len(rows))))
    assert len(sizes) == 1024
    assert np.square(sizes).sum() / sizes.sum() < 2 * sizes.mean()


def test_narrow_rows_are_padded_for_the_tree():
    assert build_split_tree(np.random.default_rng(1).random((5000, 2), np.float32), 5000).dimensions.max() < 2
