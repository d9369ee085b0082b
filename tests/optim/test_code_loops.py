"""Compiled loops and plain torch give the same bits, on any number of threads."""

import pytest
import torch

from cce import compiled
from cce.optim import code_loops, code_steps
from cce.optim.code_steps import move_codes, sum_rows
from helpers.codes import batch, table_of

pytestmark = pytest.mark.skipif(not compiled.available, reason="numba is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_of_loops_have_the_bits_of_plain_torch(dtype, plain):
    for count in (0, 1, 2, 500, 20_000):
        rows, values = batch(count)
        arguments = rows, values.to(dtype), table_of()
        found = sum_rows(*arguments)
        with plain():
            expected = sum_rows(*arguments)
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bits", [8, 16])
def test_loops_move_codes_to_the_same_bits_as_plain_torch_on_any_number_of_threads(
    bits, plain, num_threads, monkeypatch
):
    monkeypatch.setattr(code_steps, "PARALLEL", 1)
    results = []
    for threads in (1, 2, 3, None):
        table = table_of(bits=bits)
        num_groups = len(table.group_starts)
        g = torch.Generator().manual_seed(5)
        keep, gain = 1 - 0.1 * torch.rand(num_groups, 6, generator=g), 9 * torch.rand(num_groups, 6, generator=g)
        summed = sum_rows(*batch(5000), table)
        if threads is None:
            with plain():
                move_codes(table, summed, keep, gain, -7)
        else:
            num_threads(threads)
            move_codes(table, summed, keep, gain, -7)
        results.append(table.codes.values)
    for other in results[1:]:
        assert torch.equal(other, results[0])


@pytest.mark.parametrize("num_rows", [1, 2, 2**11, 2**11 + 1, 2**23])
def test_rows_are_sorted_and_equal_ones_stay_in_order(num_rows):
    rows = torch.randint(-1, num_rows, (3000,), generator=torch.Generator().manual_seed(0))
    order, scratch = torch.empty(2, 3000, dtype=torch.int64)
    count = code_loops.sort_rows(rows.numpy(), num_rows, order.numpy(), scratch.numpy())
    expected = rows.sort(stable=True).indices
    assert torch.equal(order[:count], expected[rows[expected] >= 0])
