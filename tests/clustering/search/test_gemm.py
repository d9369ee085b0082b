"""Scores of wide points choose the nearest, and the definition decides where rounding may have chosen."""

import numpy as np
import pytest
import torch

from cce.clustering.backends.torch import measure_all
from cce.clustering.search import gemm


def searched(rows, centers):
    found = gemm.Found(np.empty(len(rows), np.int32), np.empty(len(rows), rows.dtype))
    gemm.gemm_nearest(rows, gemm.prepare_centers(centers), found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["gaussian", "grid", "far away", "tiny", "huge", "equal"])
@pytest.mark.parametrize(
    ("num_rows", "num_centers", "width"), [(1, 1, 9), (500, 66, 16), (2100, 65, 5), (300, 700, 70)]
)
def test_equals_the_definition(num_rows, num_centers, width, kind, dtype):
    both = np.random.default_rng(width).standard_normal((num_rows + num_centers, width))
    if kind == "grid":  # full of ties
        both = np.round(2 * both)
    elif kind == "equal":
        both[:] = 1
    both = both * {"tiny": 1e-25, "huge": 1e17}.get(kind, 1) + (1000 if kind == "far away" else 0)
    rows, centers = np.split(both.astype(dtype), [num_rows])
    found, expected = searched(rows, centers), measure_all(torch.from_numpy(rows), torch.from_numpy(centers))
    assert found.squares.dtype == dtype
    assert np.array_equal(found.nearest, expected.nearest.numpy())
    assert np.array_equal(found.squares, expected.squares.numpy())


def test_differences_that_float32_does_not_know_are_seen_in_float64():
    rows = np.ones((3, 20))
    centers = np.stack([rows[0] + 3e-12, rows[0] + 1e-12, rows[0] + 2e-12])
    assert searched(rows, centers).nearest.tolist() == [1, 1, 1]


def test_tasks_do_not_change_the_answer(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((1000, 10)).astype(np.float32)
    whole = searched(rows, rows[:100])
    monkeypatch.setattr(gemm, "ROWS_IN_TASK", 48)
    for one, other in zip(whole, searched(rows, rows[:100]), strict=True):
        assert np.array_equal(one, other)
