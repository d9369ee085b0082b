"""How a contract makes tables, and what it compares them by: those whose vectors or gradients are wrong do not pass."""

import pytest
import torch

import cce
from cce.testing import EmbeddingContract
from helpers import broken_tables as broken
from helpers.broken_tables import Sound, contract_of

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


def test_a_class_outside_the_registry_is_made_within_its_budget():
    contract = contract_of(Sound)
    assert Sound.method not in cce.embeddings.list_methods()
    assert type(contract.make()) is Sound
    assert contract.make().num_params <= 4000
    assert contract.make(num_params=2100).num_params <= 2100
    assert contract.make(50, 8, compression=1).num_params == 400


def test_a_contract_without_a_formula_says_that_it_needs_one():
    class TestMine(EmbeddingContract):
        table_class = Sound

    with pytest.raises(NotImplementedError, match=r"TestMine must define reference\(table, x\)"):
        TestMine().test_equals_the_formula_of_its_paper()


def test_equal_bits_are_asked_for_except_after_matrix_products():
    contract, values = contract_of(Sound), torch.tensor([1.0, 1e-3])
    contract.assert_same(values + 1e-6, values)
    with pytest.raises(AssertionError):
        contract.assert_same(values + 1e-4, values)
    type(contract).has_matrix_products = False
    contract.assert_same(values.clone(), values)
    with pytest.raises(AssertionError):
        contract.assert_same(values + 1e-6, values)
