"""Scores of wide points choose candidates, the definition decides."""

import numpy as np
import pytest
import torch

from cce.clustering.search import gemm
from cce.clustering.search.plain import measure_all


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(
    ("num_rows", "num_centers", "width"), [(1, 1, 9), (500, 64, 16), (500, 65, 32), (300, 700, 12)]
)
def test_wide_points_find_their_nearest_centroid_and_true_lower_bounds(num_rows, num_centers, width, offset):
    rng = np.random.default_rng(width)
    rows = (rng.standard_normal((num_rows, width)) + offset).astype(np.float32)
    centers = (rng.standard_normal((num_centers, width)) + offset).astype(np.float32)
    found = gemm.gemm_nearest(rows, centers)
    nearest, squares = measure_all(torch.from_numpy(rows), torch.from_numpy(centers))
    assert np.array_equal(found.nearest, nearest.numpy())
    assert np.array_equal(found.squares, squares.numpy())
    distances = np.sqrt(np.square(rows[:, None].astype(np.float64) - centers).sum(2))
    distances[np.arange(num_rows), found.nearest] = np.inf
    assert (found.lower <= distances.min(1) * (1 + 1e-6)).all()


def test_equal_centroids_go_to_the_lower_index():
    centers = np.ones((70, 10), np.float32)
    assert not gemm.gemm_nearest(np.zeros((40, 10), np.float32), centers).nearest.any()


def test_pieces_do_not_change_the_answer(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((1000, 10)).astype(np.float32)
    whole = gemm.gemm_nearest(rows, rows[:100])
    monkeypatch.setattr(gemm, "ROWS_AT_ONCE", 130)
    monkeypatch.setattr(gemm, "PAIRS_AT_ONCE", 1)
    pieces = gemm.gemm_nearest(rows, rows[:100])
    assert all(np.array_equal(one, other) for one, other in zip(whole[:2], pieces[:2], strict=True))


@pytest.mark.parametrize("value", [-2.5, -0.0, 0.0, 1e-40, 3.0, float("inf")])
def test_bits_made_sortable_turn_back(value):
    bits = np.float32(value).view(np.int32)
    assert gemm.from_sortable(np.int32(bits ^ ((bits >> 31) & 0x7FFFFFFF))) == np.float32(value)
