"""The lemma: simulated, by formula, and by numerical integration."""

import math

import pytest
import torch

from cce_lab.theory import exact_ratio, simulate_ratio
from cce_lab.theory.bounds import DISTRIBUTIONS


def integrate(p, distribution, count=200_000):
    """The mean of u / (p u + (1 − p)(1 − u)) over the share u = x / (x + y), by the midpoint rule."""
    middle = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    share = middle if distribution == "exponential" else torch.sin(middle * math.pi / 2).square()
    return float((share / (p * share + (1 - p) * (1 - share))).mean())


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("p", [0.05, 0.3, 0.49999, 0.5, 0.50001, 0.7, 0.95])
def test_the_formula_is_the_integral(distribution, p):
    assert exact_ratio(p, distribution) == pytest.approx(integrate(p, distribution), rel=1e-6)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_simulation_agrees_within_its_error(distribution, p):
    found = simulate_ratio((1 - p, p), distribution, num_samples=100_000, generator=torch.Generator().manual_seed(0))
    assert abs(found.mean - exact_ratio(p, distribution)) < 4 * found.error
    assert found.error < 0.02


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("weights", [(0.6, 0.3, 0.1), (0.0, 0.9, 0.1), (0.2, 0.2, 0.2, 0.2, 0.2)])
def test_the_lemma_holds_for_more_variables(distribution, weights):
    found = simulate_ratio(weights, distribution, num_samples=100_000, generator=torch.Generator().manual_seed(0))
    assert found.mean + 4 * found.error >= 1


def test_its_condition_is_needed():
    found = simulate_ratio((0.2, 0.2, 0.6), "exponential", num_samples=100_000)
    assert found.mean + 4 * found.error < 1


def test_samples_are_drawn_in_blocks_of_any_size():
    found = simulate_ratio([1 / 3000] * 3000, "exponential", num_samples=1000)  # several blocks
    assert found.mean == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.6), (-0.5, 1.5)])
def test_what_are_no_weights_is_rejected(weights):
    with pytest.raises(ValueError, match="weights must be two or more numbers, none negative, with sum 1, got "):
        simulate_ratio(weights, "exponential", num_samples=10)
