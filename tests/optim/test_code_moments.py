"""Moments of a batch, by hand, and in loops that have the bits of plain torch."""

import pytest
import torch

from cce import compiled
from cce.optim.code_moments import Moments, Settings, follow_moments
from cce.optim.code_steps import sum_rows
from helpers.codes import batch, table_of


def moments_of(table):
    num_groups = len(table.group_starts)
    return Moments(torch.zeros(num_groups, 6), torch.zeros(num_groups, 1))


def test_a_batch_moves_the_means_of_its_groups_by_hand(path):
    table, moments = table_of(), moments_of(table_of())
    summed = sum_rows(torch.tensor([3, 4, 4, 310]), torch.full((4, 6), 2.0), table)
    keep, gain = follow_moments(table, moments, summed, Settings(0.1, 0.5, 0.75, 0.0, 1))
    assert moments.visits.flatten()[[2, -1]].tolist() == pytest.approx([0.25 * 2 / 4, 0.25 * 1 / 20])
    assert moments.squares[2, 0].item() == pytest.approx(0.25 * (2**2 + 4**2) / 4)
    assert moments.squares[-1, 0].item() == pytest.approx(0.25 * 2**2 / 20)
    assert not moments.squares[[0, 1, 3]].any()
    root, visits = 5**0.5, 0.5  # the first batch is all there is, and is not discounted
    assert keep[2, 0].item() == pytest.approx(1 / (1 + 0.1 * 0.5 / (visits * root)))
    assert gain[2, 0].item() == pytest.approx(0.1 * keep[2, 0].item() / (root * table.scale.item()))
    rare = 0.2**0.5 * (0.25 / 0.05) ** 0.5  # seen once in 20 steps, of which the mean remembers 4
    assert gain[-1, 0].item() == pytest.approx(0.1 * keep[-1, 0].item() / (rare * table.scale.item()))


def test_a_group_that_was_never_seen_gives_finite_numbers(path):
    table, moments = table_of(), moments_of(table_of())
    summed = sum_rows(torch.tensor([0]), torch.ones(1, 6), table)
    for decay in (0.0, 0.1):
        for found in follow_moments(table, moments, summed, Settings(0.1, decay, 0.9, 1e-12, 1)):
            assert found.isfinite().all()


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
@pytest.mark.parametrize("scale_by", ["table", "column", "group"])
def test_loops_have_the_bits_of_plain_torch(scale_by, plain):
    table = table_of(scale_by=scale_by)
    with torch.no_grad():
        table.scale.mul_(torch.rand(table.scale.shape, generator=torch.Generator().manual_seed(0)) + 0.5)
    ours, theirs = moments_of(table), moments_of(table)
    for step in range(1, 20):
        summed = sum_rows(*batch(seed=step), table)
        settings = Settings(0.02, 1e-3, 0.97, 1e-12, step)
        found = follow_moments(table, ours, summed, settings)
        with plain():
            expected = follow_moments(table, theirs, summed, settings)
        for one, other in zip((*found, *ours), (*expected, *theirs), strict=True):
            assert torch.equal(one, other)
