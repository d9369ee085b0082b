"""The contract in somebody else's suite: one file, pytest, and neither our conftest nor the registry."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cce
from cce.testing import ONCE_A_CLASS, SLOW_TESTS, EmbeddingContract, LinearContract

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import sys
sys.path += [{tests!r}, {examples!r}]

from helpers.broken_tables import OverBudget, Sound, WrongDense, WrongGradient, contract_of

class TestSound(type(contract_of(Sound))): pass
class TestWrongDense(type(contract_of(WrongDense))): pass
class TestWrongGradient(type(contract_of(WrongGradient))): pass
class TestOverBudget(type(contract_of(OverBudget))): pass
"""


@pytest.mark.slow
def test_pytest_runs_it_and_names_what_is_broken(tmp_path):
    paths = {"tests": str(ROOT / "tests"), "examples": str(ROOT / "examples")}
    (tmp_path / "test_mine.py").write_text(SUITE.format(**paths))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -W error\n")
    wanted = {"test_a_budget_is_met_from_below_and_nearly_spent"}
    fast = " and ".join(f"not {name}" for name in sorted(SLOW_TESTS - wanted))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-k", fast],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    failed = re.findall(r"^FAILED test_mine.py::Test(\w+)::test_(\w+)", result.stdout, re.M)
    found = {kind: {test for name, test in failed if name == kind} for kind, _ in failed}
    assert found.keys() == {"WrongDense", "WrongGradient", "OverBudget"}, result.stdout
    assert "to_dense_is_the_table_it_stands_for" in found["WrongDense"]
    assert "gradients_are_right_in_float64" in found["WrongGradient"]
    assert "a_budget_is_met_from_below_and_nearly_spent" in found["OverBudget"]
    assert "assert 60048 <= 60000" in result.stdout  # the values of what failed are shown


def test_every_slow_test_is_one_of_the_contract():
    assert {name for name in SLOW_TESTS if not hasattr(EmbeddingContract, name)} == set()
    assert len(SLOW_TESTS) == 7


def test_a_variant_leaves_out_what_is_tested_once_a_class():
    class Variant(PlainContract, variant=True):
        pass

    assert len(ONCE_A_CLASS) >= 13
    assert all(getattr(Variant, name) is None and getattr(PlainContract, name) for name in ONCE_A_CLASS)
    assert Variant.test_ids_of_any_shape


class Shifted(cce.embeddings.HashingTrickEmbedding):
    method = "shifted"

    def embed(self, ids, shape=None):
        return super().embed(ids, shape) + 1


class ShiftedContract(LinearContract):
    table_class = Shifted


class PlainContract(LinearContract):
    table_class = cce.embeddings.HashingTrickEmbedding


@pytest.mark.parametrize("name", ["test_is_the_product_of_h_and_m", "test_is_linear_in_its_codebook"])
def test_a_table_that_is_no_product_fails_the_linear_contract(name):
    getattr(PlainContract(), name)()
    with pytest.raises(AssertionError):
        getattr(ShiftedContract(), name)()
    assert torch.equal(PlainContract.ids(3), ShiftedContract.ids(3))
