"""Dense CCE for least squares: the paper's Algorithm 1, in the form whose convergence its appendix proves.

From `T_0 = 0` on, every step sets the last table beside fresh noise and fits a codebook to both:

    H_i = [T_{i−1} | G_i],   M_i = argmin_M ‖X H_i M − Y‖²,   T_i = H_i M_i

`H` has k columns: d2 of the table and k − d2 of noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.checks import check_range, check_type
from cce_lab.theory.least_squares import LeastSquares, Run
from cce_lab.theory.noise import noise_of, noise_source

if TYPE_CHECKING:
    from torch import Generator, Tensor


def dense_cce(
    problem: LeastSquares,
    num_rows: int,
    *,
    num_steps: int,
    noise: str = "iid",
    generator: Generator | None = None,
) -> Run:
    """Run `num_steps` steps with codebooks of `num_rows` rows, k with `d1 > k > d2`; noises: see `noise.NOISES`."""
    check_type("problem", problem, LeastSquares, "LeastSquares")
    check_range("num_rows", num_rows, problem.embedding_dim + 1, problem.num_embeddings)
    check_range("num_steps", num_steps, 0, 2**31)
    kind = noise_of(noise)
    small = problem.reduced
    draw = noise_source(small, kind)
    step = _half_step if kind.is_half else _step
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
