"""Compression factors beside answers found by hand."""

import math

import pytest

from cce_lab.report.factors import (
    Factor,
    Kind,
    compression_factor,
    factor_over_seeds,
    format_range,
    linear_extrapolation,
    quadratic_extrapolation,
    spread,
)

FULL = 1e6


def test_half_way_in_the_logarithm():
    """From 0.50 at 100 to 0.40 at 10,000: 0.45 is reached at 1,000, the middle of the logarithms."""
    factor = compression_factor([(100, 0.50), (10_000, 0.40)], 0.45, FULL)
    assert factor.kind is Kind.MEASURED
    assert factor.low == factor.high == factor.value == pytest.approx(1000)
    assert str(factor) == "1,000×"


def test_the_paper_s_example():
    """Vocabularies of 10, 100 and 10⁶ under a cap of 8,000: 1,639.5 over all tables, 2,000 for the largest."""
    dim, cap = 16, 8000
    params = (10 + 100) * dim + cap
    every = compression_factor([(params / 2, 0.46), (params, 0.45)], 0.45, (10 + 100 + 10**6) * dim)
    largest = compression_factor([(cap / 2, 0.46), (cap, 0.45)], 0.45, 10**6 * dim)
    assert every.kind is largest.kind is Kind.MEASURED  # to hit the baseline is to reach it
    assert every.value == pytest.approx(1639.5, abs=0.05)
    assert largest.value == pytest.approx(2000)


def test_the_smallest_size_may_be_good_enough_already():
    factor = compression_factor([(100, 0.44), (1000, 0.43)], 0.45, FULL)
    assert (factor.kind, factor.value, str(factor)) == (Kind.AT_LEAST, 10_000, "≥ 10,000×")
    assert factor.is_reached


def test_of_a_curve_that_rises_again_the_first_place_counts():
    factor = compression_factor([(100, 0.50), (10_000, 0.40), (100_000, 0.46)], 0.45, FULL)
    assert factor.value == pytest.approx(1000)
    assert factor.notes == ("the curve rises above the baseline again; this is where it first reaches it",)


def test_what_is_not_a_number_is_left_out_with_a_note():
    factor = compression_factor([(100, 0.50), (1000, math.nan), (10_000, 0.40)], 0.45, FULL)
    assert factor.value == pytest.approx(1000)
    assert factor.notes == ("1 of its points is not a number",)


# -- extrapolation -----------------------------------------------------------------------------------------------------

# BCE 0.9, 0.6, 0.5 at logs 0, 1, 2 (to base 10): the line falls by 0.1 a decade; the parabola through them is
# 0.9 − 0.4 t + 0.1 t², with its vertex, 0.5, at t = 2.
CONVEX = [(1.0, 0.9), (10.0, 0.6), (100.0, 0.5)]
# 1.0, 0.7, 0.5 at logs 0, 1, 2: the line falls by 0.2 a decade; the parabola is 1.0 − 0.35 t + 0.05 t², vertex 0.3875.
GENTLE = [(1.0, 1.0), (10.0, 0.7), (100.0, 0.5)]


def test_a_line_through_the_last_two_points():
    assert linear_extrapolation(CONVEX, 0.4) == pytest.approx(1000)
    assert linear_extrapolation([(1, 0.5), (10, 0.5)], 0.4) is None
    assert linear_extrapolation([(1, 0.5), (10, 0.6)], 0.4) is None


def test_a_parabola_through_the_last_three_points():
    """1 − 0.35 t + 0.05 t² = 0.4 at t = 3 and t = 4: the first is meant."""
    assert quadratic_extrapolation(GENTLE, 0.4) == pytest.approx(1000)
    assert quadratic_extrapolation([(0.1, 7.0), *GENTLE], 0.4) == pytest.approx(1000)


def test_a_parabola_whose_vertex_lies_above_the_baseline_does_not_meet_it():
    assert quadratic_extrapolation(GENTLE, 0.38) is None
    assert quadratic_extrapolation(CONVEX, 0.4) is None


def test_a_range_from_the_parabola_to_the_line():
    factor = compression_factor(GENTLE, 0.4, FULL)
    assert factor.kind is Kind.EXTRAPOLATED
    assert not factor.is_reached
    assert factor.low == pytest.approx(1000)  # the parabola, at 1,000
    assert factor.high == pytest.approx(FULL / 10**2.5)  # the line, at 10^2.5
    assert factor.value == pytest.approx(math.sqrt(factor.low * factor.high))
    assert str(factor) == "1,000–3,162× (extrapolated)"


def test_of_a_concave_tail_the_range_is_in_order_all_the_same():
    factor = compression_factor([(1, 1.0), (10, 0.9), (100, 0.7)], 0.4, FULL)
    assert factor.low < factor.high
    assert factor.low == pytest.approx(FULL / 10**3.5)  # the line
    assert factor.high == pytest.approx(1000)  # 1 − 0.05 t − 0.05 t² = 0.4 at t = 3, and at t = −4


def test_without_a_parabola_there_is_no_lower_bound():
    factor = compression_factor(CONVEX, 0.4, FULL)
    assert (factor.low, factor.high) == (None, pytest.approx(1000))
    assert factor.notes == ("the parabola does not meet the baseline",)
    assert str(factor) == "≤ 1,000× (extrapolated)"


def test_a_curve_that_does_not_fall_never_gets_there():
    for curve in ([(1, 0.5), (10, 0.5)], [(1, 0.5), (10, 0.6)], [(1, 0.9), (10, 0.5), (100, 0.5)]):
        factor = compression_factor(curve, 0.4, FULL)
        assert (factor.kind, factor.value, str(factor)) == (Kind.NEVER, None, "never")


def test_one_size_is_too_few():
    factor = compression_factor([(100, 0.5)], 0.4, FULL)
    assert (factor.kind, str(factor)) == (Kind.UNKNOWN, "–")
    assert factor.notes == ("not reached, and one size is too few to extrapolate from",)


@pytest.mark.parametrize("curve", [[], [(100, math.nan)], [(0, 0.4)]])
def test_nothing_to_compare_is_unknown(curve):
    assert compression_factor(curve, 0.4, FULL).kind is Kind.UNKNOWN


def test_a_baseline_or_a_size_that_is_no_number_is_unknown():
    assert compression_factor([(1, 0.4)], math.nan, FULL).kind is Kind.UNKNOWN
    assert compression_factor([(1, 0.4)], 0.4, 0).kind is Kind.UNKNOWN


# -- seeds -------------------------------------------------------------------------------------------------------------


def test_the_mean_curve_decides():
    """The seeds cross half a decade apart, at 10^2.5 and 10^3.5: the means cross at 1,000."""
    curves = {0: [(100, 0.475), (10_000, 0.375)], 1: [(100, 0.525), (10_000, 0.425)]}
    factor = factor_over_seeds(curves, dict.fromkeys(curves, 0.45), FULL)
    assert factor.value == pytest.approx(1000)
    assert factor.num_seeds == factor.num_reached == 2


def test_seeds_that_reach_the_baseline_by_themselves_are_counted():
    curves = {0: [(100, 0.50), (10_000, 0.30)], 1: [(100, 0.50), (10_000, 0.46)]}
    factor = factor_over_seeds(curves, dict.fromkeys(curves, 0.45), FULL)
    assert factor.kind is Kind.MEASURED
    assert (factor.num_reached, factor.num_seeds) == (1, 2)


def test_a_seed_is_compared_with_the_full_table_of_that_seed():
    """Seed 1 is a lucky one: its full table is better as well."""
    curve = [(100, 0.50), (10_000, 0.40)]
    alone = factor_over_seeds({1: curve}, {0: 0.49, 1: 0.45, 2: 0.49}, FULL)
    assert alone.value == pytest.approx(1000)
    assert alone.notes == ()
    both = factor_over_seeds({0: [(100, 0.54), (10_000, 0.44)], 1: curve}, {0: 0.49, 1: 0.45, 2: 0.60}, FULL)
    assert (both.value, both.num_reached) == (pytest.approx(1000), 2)


def test_sizes_with_fewer_seeds_are_compared_with_the_full_tables_of_those():
    curves = {0: [(100, 0.50), (10_000, 0.40)], 1: [(10_000, 0.30)]}  # the second size has an easy seed more
    assert factor_over_seeds(curves, {0: 0.45, 1: 0.35}, FULL).value == pytest.approx(1000)


def test_a_seed_without_a_full_table_is_compared_with_the_mean_and_that_is_noted():
    factor = factor_over_seeds({5: [(100, 0.50), (10_000, 0.40)]}, {0: 0.44, 1: 0.46, 2: math.nan}, FULL)
    assert factor.value == pytest.approx(1000)
    assert factor.notes == ("no full table of seed 5: compared with the mean of the others",)
    many = factor_over_seeds({seed: [(1, 0.4)] for seed in (2, 5)}, {0: 0.45}, FULL)
    assert many.notes == ("no full table of seed 2, 5: compared with the mean of the others",)


def test_ranges_in_words():
    assert format_range(127, 155) == "127–155×"
    assert format_range(None, 155) == "≤ 155×"
    assert format_range(0.5, 155) == "≤ 155×"
    assert format_range(0.1, 0.5) == "< 1×"
    assert format_range(12.0, 12.0) == "12.0×"
    assert str(Factor(Kind.UNKNOWN)) == "–"


def test_three_seeds_by_hand():
    found = spread([1.0, 2.0, 3.0])
    assert (found.count, found.mean, found.least, found.greatest) == (3, 2.0, 1.0, 3.0)


def test_what_is_not_a_number_is_left_out():
    assert spread([math.nan, 1.0, math.inf]).count == 1
    assert spread([math.nan]) is None
    assert spread([]) is None
