"""Sums over clusters: right, and in parts of a fixed size."""

import numpy as np
import torch

from cce.clustering import sums


def test_sums_in_parts_equal_sums_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    rows, nearest = rng.standard_normal((1000, 5)).astype(np.float32), rng.integers(7, size=1000).astype(np.int32)
    weights, squares = torch.rand(1000), rng.random(1000).astype(np.float32)
    monkeypatch.setattr(sums, "ROWS_IN_PART", 130)
    found = sums.assigned(rows, weights, nearest, squares, 8)
    mass = weights.double().numpy()
    expected = np.stack([(rows * mass[:, None])[nearest == cluster].sum(0) for cluster in range(8)])
    assert np.allclose(found.sums.numpy(), expected)
    assert np.allclose(found.totals.numpy(), np.bincount(nearest, mass, 8))
    assert np.isclose(found.inertia, (squares * mass).sum())
    assert found.totals[7] == 0


def test_moves_are_never_rounded_down():
    before = np.zeros((2, 2), np.float32)
    moves = sums.moved_distances(before, np.array([[3, 4], [0, 0]], np.float32))
    assert moves[0] >= 5
    assert moves[0] < 5.0001
    assert moves[1] == 0
