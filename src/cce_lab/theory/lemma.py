"""The lemma under the theorem: for IID `a_1 … a_n ≥ 0` and weights that sum to 1 with `p_n ≤ 1/n`,

    E[a_n / Σ p_i a_i] ≥ 1

checked by simulation, and for two variables by formula. The paper's figure has exponential and chi-square variables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cce.checks import check_choice, check_number, check_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Generator, Tensor

DISTRIBUTIONS = ("exponential", "chi-square")
BLOCK = 1 << 20  # values drawn at a time


@dataclass(frozen=True)
class Estimate:
    """A mean over random samples and its standard error."""

    mean: float
    error: float


def simulate_ratio(
    weights: Sequence[float], distribution: str, *, num_samples: int, generator: Generator | None = None
) -> Estimate:
    """Estimate `E[a_n / Σ p_i a_i]` with `p = weights`, the last of which is `p_n`."""
    check_range("num_samples", num_samples, 2, 2**63)
    p = _checked_weights(weights)
    total = squares = 0.0
    block = max(1, BLOCK // len(p))
    for start in range(0, num_samples, block):
        draws = _draw(distribution, min(block, num_samples - start), len(p), generator)
        ratios = draws[:, -1] / (draws @ p)
        total += float(ratios.sum())
        squares += float(ratios.square().sum())
    mean = total / num_samples
    variance = max(squares / num_samples - mean**2, 0.0)
    return Estimate(mean, math.sqrt(variance / (num_samples - 1)))


def exact_ratio(p: float, distribution: str) -> float:
    """`E[x / (p x + (1 − p) y)]` for two IID variables, exactly.

    The share `x / (x + y)` is uniform for exponential variables and arcsine for chi-square ones (of one degree of
    freedom), whose integrals are known.
    """
    check_choice("distribution", distribution, DISTRIBUTIONS)
    check_number("p", p)
    if not 0 < p < 1:
        raise ValueError(f"p must lie in (0, 1), got {p}.")
    q = 1 - p
    if distribution == "chi-square":
        return 1 / (math.sqrt(p) * (math.sqrt(p) + math.sqrt(q)))
    if abs(p - q) < 1e-4:  # the formula is 0 / 0 there; its first-order term
        return 1 - (p - q) / 3
    return 1 / (p - q) - q / (p - q) ** 2 * math.log(p / q)


def _checked_weights(weights: Sequence[float]) -> Tensor:
    for weight in weights:
        check_number("weights", weight, -math.inf)
    p = torch.tensor(weights, dtype=torch.float64)
    if len(p) < 2 or bool((p < 0).any()) or abs(float(p.sum()) - 1) > 1e-9:
        raise ValueError(f"weights must be two or more numbers, none negative, with sum 1, got {list(weights)}.")
    return p


def _draw(distribution: str, num_samples: int, num_variables: int, generator: Generator | None) -> Tensor:
    check_choice("distribution", distribution, DISTRIBUTIONS)
    samples = torch.empty(num_samples, num_variables, dtype=torch.float64)
    if distribution == "exponential":
        return samples.exponential_(generator=generator)
    return samples.normal_(generator=generator).square_()
