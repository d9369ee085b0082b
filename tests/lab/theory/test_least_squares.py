"""The least-squares problem: its best table, its losses, and the smaller problem that has the same."""

import pytest
import torch

from cce_lab.theory import LeastSquares, Run
from helpers.theory import normal, problem_of


def test_the_best_table_is_that_of_the_normal_equations():
    problem = problem_of(60, 8, 3)
    expected = torch.linalg.solve(problem.x.T @ problem.x, problem.x.T @ problem.y)
    torch.testing.assert_close(problem.optimum, expected)


def test_no_table_nearby_has_a_smaller_loss():
    problem = problem_of(60, 8, 3)
    best = problem.loss(problem.optimum)
    assert best == pytest.approx(problem.floor)
    for seed in range(5):
        assert problem.loss(problem.optimum + 1e-3 * normal(8, 3, seed=seed)) > best


def test_a_loss_is_the_floor_and_the_excess():
    problem = problem_of(60, 8, 3)
    table = normal(8, 3, seed=5)
    assert problem.loss(table) == pytest.approx(float((problem.x @ table - problem.y).square().sum()))
    assert problem.loss(table) == pytest.approx(problem.floor + problem.excess(table))
    assert problem.excess(torch.zeros(8, 3, dtype=torch.float64)) == pytest.approx(problem.signal)


def test_the_reduced_problem_has_the_same_losses():
    problem = problem_of(60, 8, 3)
    small = problem.reduced
    table = normal(8, 3, seed=5)
    assert small.x.shape == (8, 8)
    assert small.loss(table) == pytest.approx(problem.loss(table))
    assert small.excess(table) == pytest.approx(problem.excess(table))
    assert (small.floor, small.signal) == pytest.approx((problem.floor, problem.signal))
    assert small.reduced is small


def test_a_problem_with_few_examples_is_not_reduced():
    problem = problem_of(5, 8, 3)
    assert problem.reduced is problem
    assert problem.floor == pytest.approx(0, abs=1e-20)


def test_singular_values_are_those_of_x():
    problem = problem_of(60, 8, 3)
    torch.testing.assert_close(problem.singular_values, torch.linalg.svdvals(problem.x))


def test_columns_that_are_zero_or_depend_on_each_other_are_no_trouble():
    """Every time: torch's own default solver reads uninitialised memory here, and is wrong now and then."""
    problem = problem_of(60, 8, 3)
    whole = problem.solve(problem.x)
    features = torch.cat([torch.zeros(60, 4), problem.x, problem.x[:, :3] + problem.x[:, 3:6]], dim=1)
    for _ in range(20):
        noise = torch.randint(1, 100, (15,))  # memory that a solver may find
        del noise
        torch.testing.assert_close(features @ problem.solve(features), problem.x @ whole)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((5,), (5, 1), r"x must be a matrix with rows and columns, got shape \(5,\)\."),
        ((5, 2), (0, 2), r"y must be a matrix with rows and columns, got shape \(0, 2\)\."),
        ((5, 2), (4, 2), r"x and y must have as many rows as each other, got 5 and 4\."),
    ],
)
def test_what_is_no_problem_is_rejected(x, y, message):
    with pytest.raises(ValueError, match=message):
        LeastSquares(torch.zeros(x), torch.zeros(y))


def test_losses_are_excesses_above_the_floor():
    run = Run(torch.zeros(2, 1), (3.0, 1.0, 0.0), 5.0)
    assert run.losses == (8.0, 6.0, 5.0)
