"""The loops themselves: the order of rows, and cuts at any entry."""

import itertools

import numpy as np
import pytest
import torch

from cce import compiled
from cce.optim import compiled_steps as loops
from cce.optim.fused import Fused
from helpers.optimizers import give_gradients, make_parameters

pytestmark = pytest.mark.skipif(not compiled.available, reason="numba is not installed")


def tables_of(rows, num_rows=10, width=4):
    """A line for one parameter with a sparse gradient of ones in these rows; and the tensors it points to."""
    parameter = torch.zeros(num_rows, width)
    indices, values = torch.tensor([rows]).reshape(1, -1), torch.ones(len(rows), width)
    line = [parameter.data_ptr(), indices.data_ptr(), values.data_ptr(), len(rows), num_rows, width]
    line += [0, 0]
    return np.array([line], np.int64), (parameter, indices, values)


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ([0, 1, 9], loops.SORTED),
        ([], loops.SORTED),
        ([5], loops.SORTED),
        ([0, 2, 1], loops.UNSORTED),
        ([0, 1, 1], loops.UNSORTED),
        ([0, 10], loops.OUTSIDE),
        ([-1, 3], loops.OUTSIDE),
        ([3, 2, 10], loops.OUTSIDE),
    ],
)
def test_inspect_knows_the_order_of_rows(rows, order):
    lines, _held = tables_of(rows)
    assert loops.inspect(lines) == (order, len(rows), 4 * len(rows))
    assert lines[0, loops.ORDER] == order


def test_inspect_reports_the_worst_and_all_sizes():
    (first, held), (second, more) = tables_of([0, 1]), tables_of([3, 2, 1], width=5)
    assert loops.inspect(np.concatenate([first, second])) == (loops.UNSORTED, 5, 2 * 4 + 3 * 5)
    del held, more


def test_entries_are_cut_but_unsorted_gradients_are_not():
    lines, _held = tables_of([0, 1, 2, 3])
    assert loops.entries(lines[0], 10, 0, 12) == (0, 2)
    assert loops.entries(lines[0], 10, 12, 99) == (2, 4)
    lines[0, loops.ORDER] = loops.UNSORTED
    assert loops.entries(lines[0], 10, 0, 12) == (0, 4)
    assert loops.entries(lines[0], 10, 12, 99) == (0, 0)
    assert loops.entries(lines[0], 10, 10, 11) == (0, 4)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 15, 16, 17, 20, 21, 33, 64])
def test_rows_of_any_width_are_updated_and_nothing_beside_them(width):
    lines, (parameter, *_held) = tables_of([0, 3, 9], width=width)
    sums = torch.zeros(10)
    lines[0, loops.STATE] = sums.data_ptr()
    loops.step_adagrad(lines, np.array([-0.5], np.float32), np.float32(0), 0, 3)
    expected = torch.zeros(10, width)
    expected[[0, 3, 9]] = -0.5
    assert torch.equal(parameter, expected)
    assert torch.equal(sums, expected.any(1).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_cut_gives_the_same_bits(dtype):
    number = {torch.float32: np.float32, torch.float64: np.float64}[dtype]
    results = []
    for cuts in ([0, 1000], [0, 1, 2, 5, 30, 31, 1000], list(range(1001))):
        parameters = make_parameters([(40, 4), (30, 17), (1, 3)], dtype)
        give_gradients(parameters, "sorted", seed=1)
        sums = [torch.zeros(len(parameter), dtype=dtype) for parameter in parameters]
        fused = Fused()
        for parameter, total in zip(parameters, sums, strict=True):
            assert fused.add(parameter, parameter.grad, total)
        (tables,) = fused.check()
        for first, last in itertools.pairwise(cuts):
            loops.step_adagrad(tables.lines, np.full(3, -0.1, number), number(1e-10), first, last)
        results.append([parameter.detach() for parameter in parameters] + sums)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others, strict=True))
    assert all(total.any() for total in results[0][3:])
