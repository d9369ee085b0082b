"""Hashes of row numbers: uniform, independent of the block, different for each seed."""

import numpy as np
from scipy.stats import kstest

from cce.data.hashing import unit_hash


def test_hashes_are_uniform():
    numbers = unit_hash(np.arange(100_000), 0)
    assert (numbers.min() >= 0, numbers.max() < 1) == (True, True)
    assert kstest(numbers, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


def test_a_hash_depends_on_the_number_and_the_seed_alone():
    whole = unit_hash(np.arange(1000), 3)
    assert (unit_hash(np.arange(500, 600), 3) == whole[500:600]).all()
    assert (unit_hash(np.arange(1000), 4) != whole).all()
