"""The theorem's numbers, worked out by hand."""

import math

import pytest
import torch

from cce_lab.theory import corollary_bound, ideal_bound, lies_under, rho, steps_needed, theorem_bound
from helpers.theory import problem_of


def test_rho_is_the_smallest_square_over_the_sum():
    assert rho(problem_of(30, 3, 1, spectrum=(3, 2, 1))) == pytest.approx(1 / 14)


def test_bounds_are_the_papers():
    problem = problem_of(30, 4, 1, spectrum=(3, 2, 2, 1))
    signal, floor = problem.signal, problem.floor
    assert theorem_bound(problem, 3, 2) == pytest.approx(
        [signal + floor, (17 / 18) ** 2 * signal + floor, (17 / 18) ** 4 * signal + floor]
    )
    assert ideal_bound(problem, 3, 1) == pytest.approx([signal + floor, (3 / 4) ** 2 * signal + floor])
    assert corollary_bound(problem, 3, 1) == pytest.approx([signal + floor, math.exp(-2 / 4) * signal + floor])


def test_the_corollary_follows_from_the_theorem_where_values_are_equal():
    problem = problem_of(30, 5, 2, spectrum=(2,) * 5)
    theorem, ideal, corollary = (bound(problem, 4, 10) for bound in (theorem_bound, ideal_bound, corollary_bound))
    assert theorem == pytest.approx(ideal)
    assert all(ours <= theirs for ours, theirs in zip(theorem, corollary, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 0.01])
def test_steps_needed_are_the_fewest(epsilon):
    problem = problem_of(200, 50, 2)
    count = steps_needed(problem, 7, epsilon)
    left = [(loss - problem.floor) / problem.signal for loss in ideal_bound(problem, 7, count)]
    assert left[-1] <= epsilon < left[-2]


def test_a_mean_may_exceed_a_bound_by_its_own_error_only():
    spread = torch.tensor([[0.0, 1.0], [0.0, 3.0]], dtype=torch.float64)  # means 0 and 2, errors 0 and 1
    assert lies_under(spread, [1.0, 2.5]) == (True, 0.8)
    assert lies_under(spread, [1.0, 1.0], num_errors=1.5)[0]
    assert not lies_under(spread, [1.0, 1.0], num_errors=0.5)[0]
    assert not lies_under(spread, [-1.0, 3.0])[0]
