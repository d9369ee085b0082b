"""Hashes into [-1, 1] are uniform there, with mean 0 and variance 1/3."""

import re

import numpy as np
import pytest
import torch
from scipy import stats

from cce.indexing import UnitInterval, hash32

NUM_IDS = 20_000


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


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


def test_float32_is_the_default():
    assert UnitInterval(2)(torch.arange(3)).dtype is torch.float32


@pytest.mark.slow
def test_every_function_is_uniform_with_mean_zero_and_variance_a_third():
    numbers = UnitInterval(16, generator=seeded(1))(random_ids(), torch.float64).numpy()
    pvalues = np.array([stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue for column in numbers.T])
    assert pvalues.min() > 1e-4
    assert np.abs(numbers.mean(0)).max() < 4 * np.sqrt(1 / 3 / NUM_IDS)
    assert np.abs(numbers.var(0) - 1 / 3).max() < 4 * np.sqrt(4 / 45 / NUM_IDS)  # 4/45: variance of u², u uniform


@pytest.mark.parametrize("identity", [0, 1, 2**32, 2**63 - 1])
def test_over_many_functions_every_id_is_uniform(identity):
    numbers = UnitInterval(20_000, generator=seeded(2))(torch.tensor(identity), torch.float64).numpy()
    assert stats.kstest(numbers, stats.uniform(-1, 2).cdf).pvalue > 1e-4


def test_functions_are_uncorrelated():
    numbers = UnitInterval(8, generator=seeded(3))(random_ids(), torch.float64).numpy()
    assert np.abs(np.corrcoef(numbers, rowvar=False) - np.eye(8)).max() < 5 / np.sqrt(NUM_IDS)


@pytest.mark.parametrize("pair", [(0, 1), (3, 3 + 2**32), (5, 10)])
def test_over_many_functions_two_ids_are_uncorrelated(pair):
    first, second = UnitInterval(50_000, generator=seeded(4))(torch.tensor(pair), torch.float64).numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(50_000)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_ids_of_any_shape_get_one_more_dimension(shape):
    assert UnitInterval(5)(torch.zeros(shape, dtype=torch.int64)).shape == (*shape, 5)


def test_int32_ids_give_the_numbers_of_the_same_int64_ids():
    functions = UnitInterval(3, generator=seeded())
    ids = torch.tensor([0, 1, 77, 2**31 - 1])
    assert torch.equal(functions(ids.int()), functions(ids))


def test_equal_generators_draw_equal_functions_and_state_dict_carries_them():
    first, second, third = (UnitInterval(3, generator=seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first(random_ids()), second(random_ids()))
    assert not torch.equal(first(random_ids()), third(random_ids()))
    third.load_state_dict(first.state_dict())
    assert torch.equal(first(random_ids()), third(random_ids()))
    assert list(first.state_dict()) == ["seeds"]


def test_a_cast_to_half_leaves_the_numbers_alone():
    functions = UnitInterval(3, generator=seeded())
    before = functions(random_ids())
    assert torch.equal(functions.half()(random_ids()), before)


def test_it_prints_its_size():
    assert repr(UnitInterval(3)) == "UnitInterval(num_hashes=3)"


def test_no_functions_are_refused():
    with pytest.raises(ValueError, match=re.escape("num_hashes must lie in [1, 2**31), got 0.")):
        UnitInterval(0)
