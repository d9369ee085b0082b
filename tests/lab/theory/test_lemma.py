"""The lemma under the theorem, E[a_n / Σ p_i a_i] ≥ 1 for IID a_i ≥ 0 and p_n ≤ 1/n: by integrals and by simulation."""

import math

import pytest
import torch

DISTRIBUTIONS = ("exponential", "chi-square")
GRID = [0.05 * step for step in range(1, 20)]


def ratio_of_two(p, distribution, count=200_000):
    """E[x / (p x + (1 − p) y)], by the midpoint rule over the share u = x / (x + y).

    The share is uniform for exponential variables and arcsine for chi-square ones of one degree of freedom.
    """
    middle = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    share = middle if distribution == "exponential" else torch.sin(middle * math.pi / 2).square()
    return float((share / (p * share + (1 - p) * (1 - share))).mean())


def simulated_ratio(weights, distribution):
    """A mean over samples, and its standard error; the last weight is p_n."""
    draws = torch.empty(100_000, len(weights), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    if distribution == "exponential":
        draws.exponential_(generator=generator)
    else:
        draws.normal_(generator=generator).square_()
    ratios = draws[:, -1] / (draws @ torch.tensor(weights, dtype=torch.float64))
    return float(ratios.mean()), float(ratios.std() / len(ratios) ** 0.5)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_two_variables_have_at_least_1_up_to_one_half_and_less_beyond(distribution):
    found = {p: ratio_of_two(p, distribution) for p in GRID}
    assert all(value >= 1 - 1e-6 for p, value in found.items() if p < 0.501)
    assert all(value < 1 for p, value in found.items() if p > 0.501)
    least = {"exponential": 0.897, "chi-square": 0.828}  # as docs/theory.md has them
    assert round(min(found.values()), 3) == least[distribution]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_simulation_agrees_with_the_integral(distribution, p):
    mean, error = simulated_ratio((1 - p, p), distribution)
    assert abs(mean - ratio_of_two(p, distribution)) < 4 * error < 0.08


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("num_variables", [3, 10, 50])
def test_it_holds_for_more_variables_whose_last_weight_is_small(distribution, num_variables):
    weights = torch.rand(num_variables, generator=torch.Generator().manual_seed(1)).sort(descending=True).values
    mean, error = simulated_ratio((weights / weights.sum()).tolist(), distribution)
    assert mean + 4 * error >= 1


def test_its_condition_is_needed():
    mean, error = simulated_ratio((0.2, 0.2, 0.6), "exponential")
    assert mean + 4 * error < 1
