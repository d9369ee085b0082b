"""How fast dense CCE must converge: the paper's Theorem 3.1 (in the appendix's form) and its corollary.

    E‖X T_i − Y‖²  ≤  (1 − ρ)^(i (k − d2)) · ‖X T*‖² + ‖X T* − Y‖²,      ρ = σ_min² / Σ σ²

With all singular values equal, and with smart noise for any X, ρ may be replaced by `1/d1`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.checks import check_number, check_range

if TYPE_CHECKING:
    from cce_lab.theory.least_squares import LeastSquares


def rho(problem: LeastSquares) -> float:
    """The smallest singular value of X squared, over the sum of all of them squared: at most `1/d1`."""
    squares = problem.singular_values.square()
    if len(squares) < problem.num_embeddings:  # fewer examples than ids: the smallest of d1 singular values is zero
        return 0.0
    return float(squares[-1] / squares.sum())


def theorem_bound(problem: LeastSquares, num_rows: int, num_steps: int) -> tuple[float, ...]:
    """The theorem's bound on the mean loss after 0, 1, … `num_steps` steps with k = `num_rows`."""
    return _falling(problem, 1 - rho(problem), num_rows, num_steps)


def ideal_bound(problem: LeastSquares, num_rows: int, num_steps: int) -> tuple[float, ...]:
    """The same with `1/d1` in place of ρ: what smart noise guarantees."""
    return _falling(problem, 1 - 1 / problem.num_embeddings, num_rows, num_steps)


def corollary_bound(problem: LeastSquares, num_rows: int, num_steps: int) -> tuple[float, ...]:
    """The corollary's `e^(−i (k − d2) / d1)`, for equal singular values."""
    return _falling(problem, math.exp(-1 / problem.num_embeddings), num_rows, num_steps)


def steps_needed(problem: LeastSquares, num_rows: int, epsilon: float) -> int:
    """Steps after which the ideal bound leaves at most `epsilon` of `‖X T*‖²`: `O((d1 / k) · log(1 / ε))`."""
    check_number("epsilon", epsilon)
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must lie in (0, 1), got {epsilon}.")
    num_noise = _num_noise(problem, num_rows)
    return math.ceil(math.log(epsilon) / (num_noise * math.log1p(-1 / problem.num_embeddings)))


def lies_under(runs: Tensor, bound: Sequence[float], *, num_errors: float = 3.0) -> tuple[bool, float]:
    """Whether the mean of `runs` `(repetitions, steps + 1)` lies under a bound at every step, and how near it comes.

    How near: the largest mean / bound from the first step on. The bound is on the expectation, so a mean may exceed it
    by `num_errors` of its standard errors.
    """
    if runs.dim() != 2 or runs.shape[1] != len(bound):
        raise ValueError(f"runs must have shape (repetitions, {len(bound)}), as bound has, got {tuple(runs.shape)}.")
    most = torch.tensor(bound, dtype=torch.float64)
    mean = runs.mean(dim=0)
    error = runs.std(dim=0) / len(runs) ** 0.5
    rounding = 1e-9 * most
    return bool((mean <= most + num_errors * error + rounding).all()), float((mean / most)[1:].max())


def _falling(problem: LeastSquares, factor: float, num_rows: int, num_steps: int) -> tuple[float, ...]:
    check_range("num_steps", num_steps, 0, 2**31)
    num_noise = _num_noise(problem, num_rows)
    return tuple(factor ** (step * num_noise) * problem.signal + problem.floor for step in range(num_steps + 1))


def _num_noise(problem: LeastSquares, num_rows: int) -> int:
    check_range("num_rows", num_rows, problem.embedding_dim + 1, problem.num_embeddings)
    return num_rows - problem.embedding_dim
