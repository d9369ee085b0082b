"""Hashes into [-1, 1] are uniform there, with mean 0 and variance 1/3."""

import numpy as np
import pytest
import torch
from scipy import stats

from cce.indexing import UnitInterval, hash32
from helpers.draws import seeded

NUM_IDS = 20_000


def random_ids(seed=0):
    return torch.randint(0, 2**63 - 1, (NUM_IDS,), generator=seeded(seed))


def test_a_number_is_the_32_bit_hash_stretched_to_the_interval():
    functions = UnitInterval(3, generator=seeded())
    hashes = hash32(random_ids(), functions.seeds).double()
    expected = -1 + 2 * hashes / (2**32 - 1)
    assert torch.allclose(functions(random_ids(), torch.float64), expected, rtol=0, atol=1e-15)


def test_the_smallest_and_the_largest_hash_reach_the_ends():
    functions = UnitInterval(2)
    functions.seeds.copy_(torch.tensor([[0, 0, 0], [0, 0, -1]]))  # the hash of id 0 is 0, and 2³² − 1
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        assert functions(torch.tensor(0), dtype).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_type_stays_in_the_interval_and_near_the_double(dtype):
    functions = UnitInterval(2, generator=seeded())
    numbers = functions(random_ids(), dtype)
    assert numbers.dtype is dtype
    assert numbers.abs().max() <= 1
    assert torch.allclose(numbers.double(), functions(random_ids(), torch.float64), rtol=0, atol=torch.finfo(dtype).eps)


@pytest.mark.slow
def test_every_function_is_uniform_with_mean_zero_and_variance_a_third():
    numbers = UnitInterval(16, generator=seeded(1))(random_ids(), torch.float64).numpy()
    pvalues = np.array([stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue for column in numbers.T])
    assert pvalues.min() > 1e-4
    assert np.abs(numbers.mean(0)).max() < 4 * np.sqrt(1 / 3 / NUM_IDS)
    assert np.abs(numbers.var(0) - 1 / 3).max() < 4 * np.sqrt(4 / 45 / NUM_IDS)  # 4/45: variance of u², u uniform


@pytest.mark.parametrize("pair", [(0, 1), (3, 3 + 2**32), (5, 10)])
def test_over_many_functions_two_ids_are_uncorrelated(pair):
    first, second = UnitInterval(50_000, generator=seeded(4))(torch.tensor(pair), torch.float64).numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(50_000)
