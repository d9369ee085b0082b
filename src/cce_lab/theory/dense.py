"""Dense CCE for least squares: the paper's Algorithm 1, in the form whose convergence its appendix proves.

From `T_0 = 0` on, every step sets the last table beside fresh noise and fits a codebook to both:

    H_i = [T_{i−1} | G_i],   M_i = argmin_M ‖X H_i M − Y‖²,   T_i = H_i M_i

`H` has k columns: d2 of the table and k − d2 of noise.

The random columns of dense CCE, in four kinds (the paper's appendix, "SVD aligned noise converges faster").

"iid" are standard normal values `G`. "smart" ones are aligned with X: with `X = UΣVᵀ` they are `VΣ⁻¹G`, so that `XG`
prefers no direction. In the "half" kinds the codebook is held to the form `[I | M']`, as in the proof of the theorem:
the last table is taken over as it is, and only noise is added to it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from cce.checks import check_choice, check_range, check_type
from cce_lab.theory.least_squares import LeastSquares, Run

NOISES = ("iid", "half-iid", "smart", "half-smart")


def noise_source(problem: LeastSquares, noise: str) -> Callable[[int, Generator | None], Tensor]:
    """A function that draws `(num_embeddings, count)` random columns."""
    if noise.endswith("iid"):
        return lambda count, generator: _normal(problem.num_embeddings, count, generator)
    _, sigma, vh = torch.linalg.svd(problem.reduced.x, full_matrices=False)
    is_there = sigma > sigma[0] * len(sigma) * torch.finfo(sigma.dtype).eps  # of rank-deficient X, only its own space
    align = vh[is_there].T / sigma[is_there]
    return lambda count, generator: align @ _normal(align.shape[1], count, generator)


def _normal(num_rows: int, count: int, generator: Generator | None) -> Tensor:
    return torch.randn(num_rows, count, generator=generator, dtype=torch.float64)


def dense_cce(
    problem: LeastSquares,
    num_rows: int,
    *,
    num_steps: int,
    noise: str = "iid",
    generator: Generator | None = None,
) -> Run:
    """Run `num_steps` steps with codebooks of `num_rows` rows, k with `d1 > k > d2`; noises: see `NOISES`."""
    check_type("problem", problem, LeastSquares, "LeastSquares")
    check_range("num_rows", num_rows, problem.embedding_dim + 1, problem.num_embeddings)
    check_range("num_steps", num_steps, 0, 2**31)
    check_choice("noise", noise, NOISES)
    small = problem.reduced
    draw = noise_source(small, noise)
    step = _half_step if noise.startswith("half") else _step
    table = small.x.new_zeros(small.num_embeddings, small.embedding_dim)
    excesses = [small.signal]
    for _ in range(num_steps):
        table = step(small, table, draw(num_rows - small.embedding_dim, generator))
        excesses.append(small.excess(table))
    return Run(table, tuple(excesses), small.floor)


def _step(problem: LeastSquares, table: Tensor, noise: Tensor) -> Tensor:
    factor = torch.cat([table, noise], dim=1)  # H_i, (d1, k)
    return factor @ problem.solve(problem.x @ factor)


def _half_step(problem: LeastSquares, table: Tensor, noise: Tensor) -> Tensor:
    """Fit with `M = [I | M']`: the table stays, and the noise is fitted to what is left over."""
    left = problem.y - problem.x @ table
    return table + noise @ problem.solve(problem.x @ noise, left)
