"""The k-d order: every point once, in boxes that hold it."""

import itertools

import numpy as np
import pytest

from cce.clustering.groups import sort_into_leaves, sort_points


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
