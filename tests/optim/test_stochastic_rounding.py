import pytest
import torch

from cce import compiled
from cce.indexing import scramble
from cce.optim.stochastic_rounding import GOLDEN, make_key, shift_at, spread, spread_at, uniform, uniform_at


def test_numbers_are_uniform_and_independent_of_their_neighbours():
    numbers = uniform(make_key(0, 1), torch.arange(100_000)).double()
    assert numbers.dtype is torch.float64
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.histc(10, 0, 1).sub(10_000).abs().max() < 400  # 4 standard deviations
    neighbours = torch.corrcoef(torch.stack([numbers[1:], numbers[:-1]]))[0, 1]
    assert abs(neighbours.item()) < 0.015


def test_a_number_follows_from_key_and_place_alone():
    places = torch.arange(1000)
    numbers = uniform(make_key(3, 7), places)
    assert torch.equal(uniform(make_key(3, 7), places[500:]), numbers[500:])
    for other in (make_key(3, 8), make_key(4, 7)):
        assert (uniform(other, places) == numbers).sum() < 3
    one, two = uniform(make_key(3, 7), places).double(), uniform(make_key(3, 8), places).double()
    assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1].item()) < 0.12


def test_a_key_is_the_hash_of_seed_and_counter():
    for seed, counter in ((0, 0), (3, 7), (2**63 - 1, 2**40), (-5, 1)):
        state = torch.tensor(seed) + torch.tensor(counter) * GOLDEN
        assert make_key(seed, counter) == int(scramble(state))


def test_keys_fit_into_64_bits_for_any_seed():
    for seed in (0, 2**63 - 1):
        assert -(2**63) <= make_key(seed, 2**40) < 2**63


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
def test_the_compiled_generator_gives_the_same_bits():
    import numpy as np

    key = make_key(5, 5)
    expected = uniform(key, torch.arange(1000))
    found = [float(uniform_at(np.uint64(key % 2**64), np.uint64(place))) for place in range(1000)]
    assert torch.equal(torch.tensor(found), expected)
    uses = torch.arange(1000) % 256
    expected = spread(key, torch.arange(1000), uses)
    found = [
        float(spread_at(np.uint64(key % 2**64), np.uint64(place), np.float32(shift_at(np.uint8(place % 256)))))
        for place in range(1000)
    ]
    assert torch.equal(torch.tensor(found), expected)


def test_spread_numbers_are_uniform_over_places_and_even_over_uses():
    key, places = make_key(0, 1), torch.arange(50_000)
    numbers = spread(key, places, torch.tensor(7, dtype=torch.uint8)).double()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.histc(10, 0, 1).sub(5000).abs().max() < 300
    for place in (0, 3, 41):
        of_one = spread(key, torch.tensor(place), torch.arange(256)).sort().values
        assert (of_one - torch.arange(256) / 256).abs().max() < 0.02  # independent numbers: about 0.05


def test_errors_of_equal_steps_cancel():
    """A step of 0.3, taken 200 times: independent numbers would be off by 6 or 7."""
    places = torch.arange(1000)
    codes = torch.zeros(1000)
    for use in range(1, 201):
        codes = (codes + 0.3 + spread(make_key(0, 0), places, torch.tensor(use))).floor()
    assert (codes - 60).abs().max() <= 2
