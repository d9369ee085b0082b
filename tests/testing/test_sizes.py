"""Tables that hold more, or less, than they say do not pass."""

import pytest

from helpers import broken_tables as broken

BROKEN = [
    (broken.WrongBytes, "test_num_params_and_bytes_are_exact"),
    (broken.WrongFootprint, "test_its_footprint_is_what_it_holds"),
    (broken.WrongShapes, "test_its_footprint_is_what_it_holds"),
    (broken.OverBudget, "test_a_budget_is_met_from_below_and_nearly_spent"),
    (broken.WrongBytes, "test_a_budget_in_bytes_is_met_from_below"),
    pytest.param(broken.OverBudget, "test_any_sizes_and_budgets", marks=pytest.mark.slow),
    (broken.AnyBudget, "test_a_budget_too_small_says_the_smallest_that_works"),
    (broken.WrongFit, "test_fits_a_trained_table_or_says_why_not"),
]


@pytest.mark.parametrize(("kind", "test"), BROKEN)
def test_a_broken_table_fails_where_it_is_broken(kind, test):
    getattr(broken.contract_of(broken.Sound), test)()
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        getattr(broken.contract_of(kind), test)()


def test_a_budget_that_is_not_spent_fails():
    contract = broken.contract_of(broken.Sound)
    type(contract).fills_budget = True
    with pytest.raises(AssertionError):
        contract.test_a_budget_is_met_from_below_and_nearly_spent()
