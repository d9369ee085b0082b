"""A budget says one thing, in one way, and the same everywhere."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cce.budget import Budget, check_given, make_budget

NONE = (None, None, None, None)
sizes = st.integers(1, 10**12)
ratios = st.floats(1, 1e9) | st.integers(1, 10**9) | st.fractions(1, 1000)


@pytest.mark.slow
@given(full=sizes, compression=ratios)
@example(full=11, compression=1.1)
@example(full=10**12, compression=1)
def test_a_compression_is_met_from_below_to_the_last_parameter(full, compression):
    total = Budget(compression=compression).total(full)
    exact = full / Fraction(compression)
    slack = Fraction(1, 2**50)  # a float division rounds
    assert 1 <= total <= full
    assert total <= max(1, exact * (1 + slack))
    assert total + 1 > exact * (1 - slack)


@pytest.mark.parametrize("measure", ["cap", "num_params", "nbytes"])
def test_the_others_are_taken_as_they_are(measure):
    budget = Budget(**{measure: 77})
    assert (budget.measure, budget.total(10), budget.is_full) == (measure, 77, False)


def test_none_of_them_stands_for_full_tables():
    assert Budget().is_full
    assert str(Budget()) == "full tables"
    with pytest.raises(ValueError, match="give one of cap, num_params, nbytes and compression, or a budget, got none"):
        check_given(Budget(), "hash")
    check_given(Budget(cap=3), "hash")
    for method in ("cce", "full", "quantized"):  # their size is known without a budget
        check_given(Budget(), method)


def test_it_is_made_of_itself_or_of_one_of_four():
    budget = Budget(num_params=5)
    assert make_budget(budget, *NONE) is budget
    assert make_budget(None, 3, None, None, None) == Budget(cap=3)
    assert make_budget(None, None, None, 4, None) == Budget(nbytes=4)
    assert make_budget(None, *NONE).is_full
