"""Theory against practice, small."""

import math

import pytest
import torch

from cce_lab.theory import FIGURES, rho
from cce_lab.theory.figures.theory_practice import equal_values
from helpers.theory import normal, problem_of

PRACTICE, EQUAL, THEOREM, IDEAL, COROLLARY = range(5)


@pytest.fixture(scope="module")
def figure():
    return FIGURES["theory-practice"](quick=True)


@pytest.mark.slow
def test_the_mean_lies_under_the_theorem(figure):
    assert figure.claims[0].held
    measured, _, theorem, ideal, _ = (line.y for line in figure.series)
    assert all(found <= 1.02 * most for found, most in zip(measured, theorem, strict=True))
    assert all(low <= high for low, high in zip(ideal, theorem, strict=True))
    assert ideal[1] == pytest.approx((1 - 1 / 40) ** 4)


@pytest.mark.slow
def test_with_equal_singular_values_the_mean_lies_under_the_corollary(figure):
    assert figure.claims[1].held
    corollary = figure.series[COROLLARY].y
    assert corollary[3] == pytest.approx(math.exp(-3 * 4 / 40))
    assert all(low <= high for low, high in zip(figure.series[IDEAL].y, corollary, strict=True))
    assert figure.series[EQUAL].y[-1] < figure.series[PRACTICE].y[-1]


@pytest.mark.parametrize("num_examples", [50, 8])
def test_equal_values_keep_the_optimum_and_the_floor(num_examples):
    problem = problem_of(num_examples, 8, 3)
    equal = equal_values(problem)
    assert rho(equal) == pytest.approx(1 / 8)
    assert (equal.signal, equal.floor) == (pytest.approx(problem.signal), pytest.approx(problem.floor))


def test_equal_values_have_the_losses_of_orthonormal_columns():
    problem = problem_of(50, 8, 3)
    table = normal(8, 3, seed=7)
    expected = (torch.linalg.qr(problem.x).Q @ table - problem.y).square().sum()
    assert equal_values(problem).loss(table) == pytest.approx(float(expected))
