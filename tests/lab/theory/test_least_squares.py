"""The least-squares problem: its best table, its losses, and the smaller problem that has the same."""

import pytest
import torch

from helpers.theory import normal, problem_of


def test_the_best_table_is_that_of_the_normal_equations():
    problem = problem_of(60, 8, 3)
    expected = torch.linalg.solve(problem.x.T @ problem.x, problem.x.T @ problem.y)
    torch.testing.assert_close(problem.optimum, expected)


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


def test_columns_that_are_zero_or_depend_on_each_other_are_no_trouble():
    """Every time: torch's own default solver reads uninitialised memory here, and is wrong now and then."""
    problem = problem_of(60, 8, 3)
    whole = problem.solve(problem.x)
    features = torch.cat([torch.zeros(60, 4), problem.x, problem.x[:, :3] + problem.x[:, 3:6]], dim=1)
    for _ in range(20):
        noise = torch.randint(1, 100, (15,))  # memory that a solver may find
        del noise
        torch.testing.assert_close(features @ problem.solve(features), problem.x @ whole)
