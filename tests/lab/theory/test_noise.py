"""Noise: smart columns have no direction that X prefers."""

import pytest
import torch

from cce_lab.theory import LeastSquares
from cce_lab.theory.least_squares import noise_source
from helpers.theory import problem_of


def draws(problem, name, count=20_000):
    return noise_source(problem, name)(count, torch.Generator().manual_seed(0))


def test_iid_noise_is_standard_normal():
    noise = draws(problem_of(30, 4, 1, spectrum=(10, 3, 1, 0.1)), "iid")
    torch.testing.assert_close(noise @ noise.T / noise.shape[1], torch.eye(4, dtype=torch.float64), atol=0.05, rtol=0)


@pytest.mark.parametrize("num_examples", [30, 4])
def test_x_makes_smart_noise_round(num_examples):
    problem = problem_of(num_examples, 4, 1, spectrum=(10, 3, 1, 0.1))
    seen = problem.reduced.x @ draws(problem, "smart")
    torch.testing.assert_close(seen @ seen.T / seen.shape[1], torch.eye(4, dtype=torch.float64), atol=0.05, rtol=0)


def test_smart_noise_of_a_deficient_x_stays_in_its_space():
    x = problem_of(30, 4, 1, spectrum=(10, 3, 0, 0)).x
    problem = LeastSquares(x, torch.ones(30, 1))
    noise = draws(problem, "smart", 50)
    assert bool(noise.isfinite().all())
    assert int(torch.linalg.matrix_rank(noise)) == 2
