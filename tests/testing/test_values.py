"""Tables whose vectors or gradients are wrong do not pass."""

import pytest

from helpers import broken_tables as broken

BROKEN = [
    (broken.WrongFormula, "test_equals_the_formula_of_its_paper"),
    (broken.WrongDense, "test_to_dense_is_the_table_it_stands_for"),
    (broken.WrongDense, "test_bags_pool_rows_of_the_dense_table"),
    (broken.FlatIdsOnly, "test_ids_of_any_shape"),
    (broken.WrongGradient, "test_gradients_are_right_in_float64"),
    (broken.WrongSparseGradient, "test_sparse_gradients_equal_dense_ones"),
    (broken.PaddingIsLookedUp, "test_padding_idx_gives_zeros_and_no_gradient"),
    (broken.AlwaysFloat32, "test_all_float_types"),
    (broken.OwnRandomness, "test_equal_seeds_give_equal_bits"),
    (broken.WideStart, "test_starts_with_the_common_mean_and_variance"),
    (broken.UncheckedIds, "test_wrong_ids_are_named"),
]


@pytest.mark.parametrize(("kind", "test"), BROKEN)
def test_a_broken_table_fails_where_it_is_broken(kind, test):
    getattr(broken.contract_of(broken.Sound), test)()
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        getattr(broken.contract_of(kind), test)()


def test_a_table_without_sparse_gradients_must_reject_them():
    contract = broken.contract_of(broken.Sound)
    type(contract).has_sparse = False
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        contract.test_sparse_gradients_equal_dense_ones()
