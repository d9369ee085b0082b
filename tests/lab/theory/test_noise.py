"""Noise: smart columns have no direction that X prefers."""

import pytest
import torch

from cce_lab.theory import LeastSquares, dense_cce, lies_under
from cce_lab.theory.least_squares import NOISES, alignment
from helpers.theory import problem_of


def smart(problem, count=20_000):
    align = alignment(problem.reduced)
    return align @ torch.randn(align.shape[1], count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("num_examples", [30, 4])
def test_x_makes_smart_noise_round(num_examples):
    problem = problem_of(num_examples, 4, 1, spectrum=(10, 3, 1, 0.1))
    seen = problem.reduced.x @ smart(problem)
    torch.testing.assert_close(seen @ seen.T / seen.shape[1], torch.eye(4, dtype=torch.float64), atol=0.05, rtol=0)


def test_smart_noise_of_a_deficient_x_stays_in_its_space():
    x = problem_of(30, 4, 1, spectrum=(10, 3, 0, 0)).x
    problem = LeastSquares(x, torch.ones(30, 1))
    noise = smart(problem, 50)
    assert bool(noise.isfinite().all())
    assert int(torch.linalg.matrix_rank(noise)) == 2


@pytest.mark.slow
def test_smart_noise_converges_faster_and_keeps_the_bound_with_1_over_d1():
    """The appendix "SVD aligned noise converges faster": a random X of rank 10 plus a bit, at a small size."""
    numbers, num_ids, dim, rows, num_steps = torch.Generator().manual_seed(0), 30, 5, 10, 40
    found = {name: [] for name in NOISES}
    for _ in range(6):
        left, right, own, y = (
            torch.randn(*shape, generator=numbers, dtype=torch.float64)
            for shape in ((100, 10), (10, num_ids), (100, num_ids), (100, dim))
        )
        problem = LeastSquares(left @ right + 0.1 * own, y).reduced
        for name, losses in found.items():
            run = dense_cce(problem, rows, num_steps=num_steps, noise=name, generator=numbers)
            losses.append([excess / problem.signal for excess in run.excesses])
    runs = {name: torch.tensor(losses, dtype=torch.float64) for name, losses in found.items()}
    mean = {name: losses.mean(0).tolist() for name, losses in runs.items()}
    assert mean["smart"][-1] < 0.01 * mean["iid"][-1]
    bound = [(1 - 1 / num_ids) ** (step * (rows - dim)) for step in range(num_steps + 1)]
    assert lies_under(runs["smart"], bound)[0]
    # steps to where a codebook held to [I | M'] ends: it costs more with IID noise
    reached = {
        name: next(step for step, excess in enumerate(mean[name]) if excess <= mean[f"half-{name}"][-1])
        for name in ("iid", "smart")
    }
    assert reached["iid"] < reached["smart"] < num_steps
