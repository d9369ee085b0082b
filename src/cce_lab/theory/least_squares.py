"""The least-squares problem of the paper's theory: the table `T` that minimises `‖XT − Y‖²` (Section 3).

`X` has a row for each of n examples and a column for each of d1 ids; `Y` has d2 values for each example.

Dense CCE is the paper's Algorithm 1, in the form whose convergence its appendix proves. From `T_0 = 0` on, every step
sets the last table beside fresh noise and fits a codebook to both:

    H_i = [T_{i−1} | G_i],   M_i = argmin_M ‖X H_i M − Y‖²,   T_i = H_i M_i

`H` has k columns: d2 of the table and k − d2 of noise, of four kinds (the appendix, "SVD aligned noise converges
faster"). "iid" are standard normal values `G`. "smart" ones are aligned with X: with `X = UΣVᵀ` they are `VΣ⁻¹G`, so
that `XG` prefers no direction. In the "half" kinds the codebook is held to the form `[I | M']`, as in the proof of the
theorem: the last table is taken over as it is, and only noise is added to it.

How fast it must converge is the paper's Theorem 3.1 (in the appendix's form):

    E‖X T_i − Y‖²  ≤  (1 − ρ)^(i (k − d2)) · ‖X T*‖² + ‖X T* − Y‖²,      ρ = σ_min² / Σ σ²

With all singular values equal, and with smart noise for any X, ρ may be replaced by `1/d1`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from cce.checks import check_choice, check_number, check_range, check_type


class LeastSquares:
    """`X` `(n, num_embeddings)` and `Y` `(n, embedding_dim)` in float64; `rest` is a loss that any table has."""

    def __init__(self, x: Tensor, y: Tensor, *, rest: float = 0.0) -> None:
        for name, matrix in (("x", x), ("y", y)):
            check_type(name, matrix, Tensor, "a Tensor")
            if matrix.dim() != 2 or 0 in matrix.shape:
                raise ValueError(f"{name} must be a matrix with rows and columns, got shape {tuple(matrix.shape)}.")
            if not bool(matrix.isfinite().all()):
                raise ValueError(f"{name} must be finite, got {int((~matrix.isfinite()).sum())} non-finite values.")
        if len(x) != len(y):
            raise ValueError(f"x and y must have as many rows as each other, got {len(x)} and {len(y)}.")
        self.x = x.double()
        self.y = y.double()
        self.rest = rest

    @property
    def num_embeddings(self) -> int:
        """The number of ids, d1."""
        return self.x.shape[1]

    @property
    def embedding_dim(self) -> int:
        """The embedding dimension, d2."""
        return self.y.shape[1]

    @cached_property
    def reduced(self) -> LeastSquares:
        """The same problem with at most d1 examples: every table has the same loss in both.

        `X = QR` with orthonormal Q, so `‖XT − Y‖² = ‖RT − QᵀY‖² + ‖Y − QQᵀY‖²`. Nothing is squared on the way.
        """
        if len(self.x) <= self.num_embeddings:
            return self
        q, r = torch.linalg.qr(self.x)
        inside = q.T @ self.y
        return LeastSquares(r, inside, rest=self.rest + square(self.y - q @ inside))

    @cached_property
    def optimum(self) -> Tensor:
        """The best table `T*`, `(d1, d2)`; of several, the one of the smallest norm."""
        return self.reduced.solve(self.reduced.x)

    @cached_property
    def fitted(self) -> Tensor:
        """What the best table predicts, `X T*`."""
        return self.x @ self.optimum

    @cached_property
    def signal(self) -> float:
        """`‖X T*‖²`: the excess of a table of zeros."""
        return square(self.fitted)

    @cached_property
    def floor(self) -> float:
        """`‖X T* − Y‖²`: the loss of the best table."""
        return self.rest + square(self.fitted - self.y)

    @cached_property
    def singular_values(self) -> Tensor:
        """The singular values of X, largest first."""
        values: Tensor = torch.linalg.svdvals(self.reduced.x)
        return values

    def loss(self, table: Tensor) -> float:
        """`‖XT − Y‖²`."""
        return self.rest + square(self.x @ table - self.y)

    def excess(self, table: Tensor) -> float:
        """`‖X(T − T*)‖²`: the loss above the best one, by Pythagoras, without the rounding of a difference."""
        return square(self.x @ table - self.fitted)

    def solve(self, features: Tensor, target: Tensor | None = None) -> Tensor:
        """`argmin_M ‖features · M − Y‖²`, of the smallest norm where columns of `features` depend on each other."""
        target = self.y if target is None else target
        # by singular values: torch's default "gelsy" pivots by uninitialised memory (pytorch issue 187411)
        solution: Tensor = torch.linalg.lstsq(features, target, driver="gelsd").solution
        return solution


def square(matrix: Tensor) -> float:
    return float(matrix.square().sum())


@dataclass(frozen=True)
class Run:
    """What an algorithm leaves behind: the last table, and how far each was from the best.

    `excesses[i]` is `‖X(T_i − T*)‖²`, from `T_0` on.
    """

    table: Tensor  # (num_embeddings, embedding_dim)
    excesses: tuple[float, ...]
    floor: float  # the loss of the best table

    @property
    def losses(self) -> tuple[float, ...]:
        """`‖XT_i − Y‖²`, from `T_0` on."""
        return tuple(excess + self.floor for excess in self.excesses)


NOISES = ("iid", "half-iid", "smart", "half-smart")


def alignment(problem: LeastSquares) -> Tensor:
    """`VΣ⁻¹`, which makes smart noise of normal values; of rank-deficient X, in its own space only."""
    _, sigma, vh = torch.linalg.svd(problem.x, full_matrices=False)
    is_there = sigma > sigma[0] * len(sigma) * torch.finfo(sigma.dtype).eps
    found: Tensor = vh[is_there].T / sigma[is_there]
    return found


def dense_cce(
    problem: LeastSquares, num_rows: int, *, num_steps: int, noise: str = "iid", generator: Generator | None = None
) -> Run:
    """Run `num_steps` steps with codebooks of `num_rows` rows, k with `d1 > k > d2`; noises: see `NOISES`."""
    check_range("num_rows", num_rows, problem.embedding_dim + 1, problem.num_embeddings)
    check_range("num_steps", num_steps, 0, 2**31)
    check_choice("noise", noise, NOISES)
    small = problem.reduced
    align = alignment(small) if noise.endswith("smart") else None
    shape = small.num_embeddings if align is None else align.shape[1], num_rows - small.embedding_dim
    table = small.x.new_zeros(small.num_embeddings, small.embedding_dim)
    excesses = [small.signal]
    for _ in range(num_steps):
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        drawn = drawn if align is None else align @ drawn
        if noise.startswith("half"):  # M = [I | M']: the table stays, and noise is fitted to what is left over
            table = table + drawn @ small.solve(small.x @ drawn, small.y - small.x @ table)
        else:
            factor = torch.cat([table, drawn], dim=1)  # H_i, (d1, k)
            table = factor @ small.solve(small.x @ factor)
        excesses.append(small.excess(table))
    return Run(table, tuple(excesses), small.floor)


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
    most = torch.tensor(bound, dtype=torch.float64)
    mean = runs.mean(dim=0)
    error = runs.std(dim=0) / len(runs) ** 0.5
    allowed = most * (1 + 1e-9) + num_errors * error  # with rounding
    return bool((mean <= allowed).all()), float((mean / most)[1:].max())


def _falling(problem: LeastSquares, factor: float, num_rows: int, num_steps: int) -> tuple[float, ...]:
    check_range("num_steps", num_steps, 0, 2**31)
    num_noise = _num_noise(problem, num_rows)
    return tuple(factor ** (step * num_noise) * problem.signal + problem.floor for step in range(num_steps + 1))


def _num_noise(problem: LeastSquares, num_rows: int) -> int:
    check_range("num_rows", num_rows, problem.embedding_dim + 1, problem.num_embeddings)
    return num_rows - problem.embedding_dim
