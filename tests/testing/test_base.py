"""How a contract makes tables, of any class, and what it compares them by."""

import pytest
import torch

import cce
from cce.testing import EmbeddingContract
from helpers.broken_tables import Sound, contract_of


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
