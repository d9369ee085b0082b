"""The loop of lazy Adam: its formula, value by value, on any cut of the rows."""

import math

import numpy as np
import pytest
import torch

from cce import compiled
from cce.optim.compiled_adam import step_adam
from cce.optim.fused import Fused

pytestmark = pytest.mark.skipif(not compiled.available, reason="numba is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_its_formula_on_any_cut(dtype):
    g = torch.Generator().manual_seed(0)
    parameter, mean, square, values = (torch.randn(6, 5, generator=g).to(dtype) for _ in range(4))
    square.abs_()
    before = [each.double().tolist() for each in (parameter, mean, square)]
    rows = [1, 4, 5]
    grad = torch.sparse_coo_tensor([rows], values[:3], (6, 5), check_invariants=True)
    fused = Fused()
    assert fused.add(parameter, grad, mean)
    (tables,) = fused.check()
    settings = np.array([0.8, 0.9, 0.01, dtype.itemsize])
    for cut in range(3):
        step_adam(tables.lines, np.array([square.data_ptr()]), np.array([[-0.5, 1.5]]), settings, cut, cut + 1)
    for index, row in enumerate(rows):
        for k in range(5):
            p, m, v = (each[row][k] for each in before)
            slope = values[index, k].item()
            m += 0.2 * (slope - m)
            v = 0.9 * v + 0.1 * slope**2
            assert mean[row, k].item() == pytest.approx(m, rel=1e-6)
            assert square[row, k].item() == pytest.approx(v, rel=1e-6)
            assert parameter[row, k].item() == pytest.approx(p - 0.5 * m / (math.sqrt(v) * 1.5 + 0.01), rel=1e-5)
    for found, had in zip((parameter, mean, square), before, strict=True):
        assert found[[0, 2, 3]].double().tolist() == [had[row] for row in (0, 2, 3)]
