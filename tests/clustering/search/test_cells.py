"""Cells of a k-d tree: every point once, on its own side of every cut."""

import subprocess
import sys

import numpy as np
import pytest

from cce.clustering.search.cells import build_split_tree, find_cells, padded, sort_into_cells


def some_rows(kind, num_rows):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_rows, 4)).astype(np.float32)
    if kind == "equal":
        rows[:] = 1
    elif kind == "skewed":
        rows = np.exp(8 * rows)
    elif kind == "few values":
        rows = np.round(rows)
    return rows


@pytest.mark.parametrize("kind", ["gaussian", "equal", "skewed", "few values"])
@pytest.mark.parametrize("num_rows", [1, 200, 30_000])
def test_every_point_lies_once_in_the_cell_that_the_cuts_lead_to(kind, num_rows):
    rows = some_rows(kind, num_rows)
    tree = build_split_tree(rows, num_rows)
    cells = sort_into_cells(rows, tree)
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
    sizes = np.bincount(find_cells(rows, build_split_tree(rows, len(rows))))
    assert len(sizes) == 1024
    assert np.square(sizes).sum() / sizes.sum() < 2 * sizes.mean()


def test_narrow_rows_are_padded_with_zeros_which_no_cut_takes():
    rows = padded(np.random.default_rng(1).random((5000, 2), np.float32))
    assert rows.shape == (5000, 4)
    assert not rows[:, 2:].any()
    assert build_split_tree(rows, 5000).dimensions.max() < 2


INTERRUPTED = """
import signal, time
import numpy as np
from cce.clustering.search.cells import build_split_tree, sort_into_cells

rows = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
expected = sort_into_cells(rows, build_split_tree(rows, 40))
caught, end, may_raise = 0, time.monotonic() + 2, False

def interrupt(*_):
    global may_raise
    if may_raise:
        may_raise = False
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
while time.monotonic() < end:
    try:
        may_raise = True
        found = sort_into_cells(rows, build_split_tree(rows, 40))
        may_raise = False
    except KeyboardInterrupt:
        caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
found = sort_into_cells(rows, build_split_tree(rows, 40))
assert caught > 100, caught
assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
"""


@pytest.mark.slow
def test_an_interrupt_while_compiled_code_returns_is_an_exception_and_no_crash():
    """numba makes a named tuple by calling Python, and does not look whether that raised."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
