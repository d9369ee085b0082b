"""Sparse CCE for least squares: the paper's Algorithm 2, and the baseline it is compared with.

From `T_0 = 0` on, every step clusters the last table, sets a count sketch beside the clusters and fits a codebook:

    H_i = [A | C],   A = kmeans(T_{i−1}),   C ~ countsketch(),   M_i = argmin_M ‖X H_i M − Y‖²,   T_i = H_i M_i

`A` and `C` have k columns each, so the codebook has 2k rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cce.checks import check_range, check_type
from cce_lab.theory.factor import count_sketch
from cce_lab.theory.factorise import factorise
from cce_lab.theory.least_squares import LeastSquares, Run

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from cce_lab.theory.factor import SparseFactor


@dataclass(frozen=True)
class SparseRun(Run):
    """A run whose table is `factor.times(codebook)`."""

    factor: SparseFactor
    codebook: Tensor  # (2k, embedding_dim)


def sparse_cce(
    problem: LeastSquares,
    num_rows: int,
    *,
    num_steps: int,
    num_ones: int = 1,
    way: str = "k-means",
    start: Tensor | None = None,
    generator: Generator | None = None,
) -> SparseRun:
    """Run `num_steps` steps with `num_rows` clusters and as many rows of sketch; rows of A and C have `num_ones`.

    `start` is another `T_0` than zero, `(num_embeddings, embedding_dim)`.
    """
    check_type("problem", problem, LeastSquares, "LeastSquares")
    check_range("num_rows", num_rows, 1, 2**31)
    check_range("num_steps", num_steps, 1, 2**31)
    small = problem.reduced
    expected = (small.num_embeddings, small.embedding_dim)
    if start is not None and tuple(start.shape) != expected:
        raise ValueError(f"start must have shape {expected}, got {tuple(start.shape)}.")
    table = small.x.new_zeros(small.num_embeddings, small.embedding_dim) if start is None else start.double()
    excesses = [small.excess(table)]
    for _ in range(num_steps):
        clusters = factorise(table, num_rows, num_ones=num_ones, way=way, generator=generator)
        sketch = count_sketch(small.num_embeddings, num_rows, num_ones=num_ones, generator=generator)
        factor = clusters.beside(sketch)
        codebook = small.solve(factor.after(small.x))
        table = factor.times(codebook)
        excesses.append(small.excess(table))
    return SparseRun(table, tuple(excesses), small.floor, factor, codebook)


def clustered_optimum(
    problem: LeastSquares, num_rows: int, *, num_ones: int = 1, generator: Generator | None = None
) -> SparseRun:
    """The baseline: find the best table in full, cluster it, and fit the `num_rows` rows of its codebook once more."""
    small = problem.reduced
    factor = factorise(small.optimum, num_rows, num_ones=num_ones, generator=generator)
    codebook = small.solve(factor.after(small.x))
    table = factor.times(codebook)
    return SparseRun(table, (small.excess(table),), small.floor, factor, codebook)
