"""Means, intervals and Student's t, beside answers from a table and from scipy."""

import math

import pytest
from scipy import stats

from cce.report.statistics import spread, spread_of_ratios, student_t


def test_three_seeds_by_hand():
    found = spread([1.0, 2.0, 3.0])
    assert (found.count, found.mean, found.least, found.greatest) == (3, 2.0, 1.0, 3.0)
    half = 4.3027 * 1.0 / math.sqrt(3)  # the deviation is 1
    assert found.low == pytest.approx(2 - half)
    assert found.high == pytest.approx(2 + half)


def test_one_seed_has_no_interval():
    found = spread([0.45])
    assert (found.count, found.mean, found.low, found.high) == (1, 0.45, None, None)


def test_equal_numbers_have_an_interval_of_no_width():
    found = spread([0.1] * 3)
    assert found.least == found.mean == found.greatest == found.low == found.high == 0.1


def test_what_is_not_a_number_is_left_out():
    assert spread([math.nan, 1.0, math.inf]).count == 1
    assert spread([math.nan]) is None
    assert spread([]) is None


def test_ratios_have_a_geometric_mean_and_an_interval_above_zero():
    found = spread_of_ratios([10.0, 1000.0])
    assert found.mean == pytest.approx(100)
    assert (found.least, found.greatest) == (pytest.approx(10), pytest.approx(1000))
    assert 0 < found.low < 1
    assert found.low * found.high == pytest.approx(100**2)
    assert spread_of_ratios([0.0, -1.0]) is None
    assert spread_of_ratios([7.0]).low is None


def test_ratios_too_far_apart_have_an_interval_without_an_end():
    assert spread_of_ratios([1e-300, 1e300]).high == math.inf


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 20, 30])
def test_the_table_is_student_s(freedom):
    assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=6e-5)


@pytest.mark.parametrize("freedom", [31, 50, 100, 1000])
def test_beyond_the_table_it_is_near(freedom):
    assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-3)
