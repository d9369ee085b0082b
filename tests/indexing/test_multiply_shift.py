"""Multiply-shift is what Thorup wrote, to the bit, and as random as he proved."""

import copy

import numpy as np
import pytest
import torch
from scipy import stats

from cce.indexing import MultiplyShift, hash32
from cce.indexing.multiply_shift import draw_seeds, scramble
from helpers import slow
from helpers.draws import seeded

CORNERS = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**53 + 1, 2**62, 2**63 - 2, 2**63 - 1]
PAIRS = [(0, 1), (0, 2**63 - 1), (5, 5 + 2**32), (5, 5 + 2**40), (7, 14), (2**32 - 1, 2**32), (2**62, 2**62 + 2**31)]


def slow_hash32(identity, seeds):
    """Thorup's formula in Python's integers, which never overflow."""
    identity = slow.scramble(identity)
    low, high = identity % 2**32, identity // 2**32
    a, b, c = (int(seed) % 2**64 for seed in seeds)
    return (((a + low) * (b + high) + c) % 2**64) // 2**32


def random_ids(count, seed=0):
    return torch.randint(0, 2**63 - 1, (count,), generator=seeded(seed))


def uniformity(rows, num_rows):
    """Chi-square of each column of rows `(n, num_hashes)` against equal loads."""
    flat = rows + num_rows * torch.arange(rows.shape[1])
    loads = torch.bincount(flat.flatten(), minlength=num_rows * rows.shape[1]).view(rows.shape[1], num_rows).numpy()
    return stats.chisquare(loads, axis=1)


def test_hashes_equal_the_formula_in_big_integers_for_every_size_of_id():
    seeds = draw_seeds(5, seeded())
    ids = [*CORNERS, *random_ids(200).tolist(), *(random_ids(200, seed=1) >> 32).tolist()]
    expected = [[slow_hash32(identity, row) for row in seeds] for identity in ids]
    assert hash32(torch.tensor(ids), seeds).tolist() == expected


def test_hashes_equal_the_formula_for_the_seeds_that_overflow_most():
    extremes = torch.tensor([[0, 0, 0], [-1, -1, -1], [-(2**63)] * 3, [2**63 - 1] * 3, [1, -(2**63), -1]])
    expected = [[slow_hash32(identity, row) for row in extremes] for identity in CORNERS]
    assert hash32(torch.tensor(CORNERS), extremes).tolist() == expected


@pytest.mark.parametrize("num_rows", [1, 2, 3, 1000, 2**16, 2**31 - 1])
def test_rows_are_the_hash_scaled_down_exactly(num_rows):
    functions = MultiplyShift(4, num_rows, generator=seeded())
    ids = [*CORNERS, *random_ids(100).tolist()]
    expected = [[slow_hash32(identity, row) * num_rows // 2**32 for row in functions.seeds] for identity in ids]
    rows = functions(torch.tensor(ids))
    assert rows.tolist() == expected
    assert rows.dtype is torch.int64
    assert 0 <= rows.min() <= rows.max() < num_rows


def test_scrambling_is_a_bijection():
    ids = torch.cat([torch.arange(10_000), random_ids(10_000), torch.tensor(CORNERS)]).unique()
    assert len(scramble(ids).unique()) == len(ids)


@pytest.mark.slow
def test_no_function_lets_consecutive_ids_collide_much_more_than_chance():
    """Multiply-shift alone does, up to a dozen times, for one function in twenty."""
    num_ids, num_rows = 10_000, 1_000
    rows = MultiplyShift(300, num_rows, generator=seeded())(torch.arange(num_ids))
    expected = num_ids * (num_ids - 1) / 2 / num_rows
    for column in rows.unbind(1):
        loads = torch.bincount(column, minlength=num_rows).double()
        assert (loads * (loads - 1) / 2).sum() < 1.05 * expected


@pytest.mark.slow
def test_compiled_rows_are_the_same_bits():
    functions = MultiplyShift(3, 1000, generator=seeded())
    compiled = torch.compile(functions, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(random_ids(500)), functions(random_ids(500)))


@pytest.mark.parametrize("num_rows", [7, 64])
@pytest.mark.parametrize("identity", CORNERS)
def test_over_many_functions_every_id_is_uniform(identity, num_rows):
    rows = MultiplyShift(20_000, num_rows, generator=seeded(identity % 1009))(torch.tensor([identity]))
    assert 1e-4 < uniformity(rows.T, num_rows).pvalue.item() < 1 - 1e-4


@pytest.mark.parametrize("num_rows", [2, 5])
@pytest.mark.parametrize("pair", PAIRS)
def test_over_many_functions_two_ids_are_independent(pair, num_rows):
    rows = MultiplyShift(50_000, num_rows, generator=seeded(num_rows))(torch.tensor(pair))
    joint = (rows[0] * num_rows + rows[1]).unsqueeze(-1)
    assert 1e-4 < uniformity(joint, num_rows**2).pvalue.item() < 1 - 1e-4


@pytest.mark.slow
def test_the_collision_rate_of_all_pairs_averages_to_one_in_num_rows():
    num_ids, num_rows, num_functions = 300, 50, 400
    rows = MultiplyShift(num_functions, num_rows, generator=seeded(5))(random_ids(num_ids))
    first, second = torch.triu_indices(num_ids, num_ids, offset=1)
    rate = (rows[first] == rows[second]).double().mean().item()
    assert rate == pytest.approx(1 / num_rows, rel=0.01)


@pytest.mark.parametrize("num_rows", [2, 7, 64, 1000, 4096])
def test_every_single_function_spreads_random_ids_evenly(num_rows):
    pvalues = uniformity(MultiplyShift(32, num_rows, generator=seeded(1))(random_ids(20_000)), num_rows).pvalue
    assert pvalues.min() > 1e-4
    assert pvalues.max() < 1 - 1e-4


@pytest.mark.parametrize("num_rows", [7, 64])
@pytest.mark.parametrize("shift", [0, 8, 31, 32, 48])
@pytest.mark.parametrize("start", [0, 2**61])
def test_most_functions_spread_equal_steps_of_a_power_of_two_evenly(num_rows, shift, start):
    # equal steps stay equal steps under multiplication, so some functions clump them: pairwise independence bounds the
    # average over functions (the tests above), not each one
    ids = start + (torch.arange(10_000) << shift)
    pvalues = uniformity(MultiplyShift(64, num_rows, generator=seeded(2))(ids), num_rows).pvalue
    assert np.median(pvalues) > 0.1
    assert (pvalues > 1e-4).mean() > 0.75


def test_columns_are_independent_of_each_other():
    num_rows = 8
    rows = MultiplyShift(6, num_rows, generator=seeded(4))(random_ids(50_000))
    pairs = [(i, j) for i in range(6) for j in range(i)]
    joint = torch.stack([rows[:, i] * num_rows + rows[:, j] for i, j in pairs], dim=1)
    assert joint.shape[1] == 15
    pvalues = uniformity(joint, num_rows**2).pvalue
    assert pvalues.min() > 1e-4
    assert np.abs(np.corrcoef(rows.numpy(), rowvar=False) - np.eye(6)).max() < 5 / np.sqrt(50_000)


def test_signs_are_plus_or_minus_one_and_balanced():
    signs = MultiplyShift(8, 2, generator=seeded()).signs(random_ids(20_000))
    assert signs.unique().tolist() == [-1, 1]
    assert signs.double().mean(0).abs().max() < 4 / np.sqrt(20_000)


@pytest.mark.parametrize("pair", PAIRS)
def test_over_many_functions_the_signs_of_two_ids_are_uncorrelated(pair):
    first, second = MultiplyShift(100_000, 2, generator=seeded(9)).signs(torch.tensor(pair)).double()
    assert abs((first * second).mean().item()) < 4 / np.sqrt(100_000)


def test_seeds_use_all_64_bits():
    seeds = draw_seeds(10_000, seeded())
    bits = (seeds.flatten().unsqueeze(-1) >> torch.arange(64)) & 1
    assert (bits.double().mean(0) - 0.5).abs().max() < 4 * 0.5 / np.sqrt(30_000)


def test_resetting_changes_the_functions_in_place_and_repeatably():
    functions = MultiplyShift(2, 1000, generator=seeded())
    twin, storage, before = copy.deepcopy(functions), functions.seeds.data_ptr(), functions(random_ids(100))
    functions.reset_parameters(seeded(8))
    twin.reset_parameters(seeded(8))
    assert functions.seeds.data_ptr() == storage
    assert torch.equal(functions.seeds, twin.seeds)
    assert (functions(random_ids(100)) == before).double().mean() < 0.05


def test_stacked_rows_lie_in_tables_one_below_the_other():
    functions = MultiplyShift(3, 10, generator=seeded())
    ids = torch.arange(12).view(3, 4)
    assert torch.equal(functions.stacked(ids), functions(ids) + torch.tensor([0, 10, 20]))
