"""Sparse CCE with exact refits for least squares: clusters of what ids want, instead of clusters and a sketch.

With all other ids fixed, the row that id `i` wants, the one that minimises `‖XT − Y‖²`, is known exactly:

    w_i = t_i + x_iᵀ(Y − XT) / ‖x_i‖²        x_i: the column of X that belongs to the id

A step asks every id, clusters the answers, `A = kmeans(W)`, and fits the codebook, `M = argmin_M ‖X A M − Y‖²`. There
is no sketch: ids of one cluster are told apart by what they want, not by what random buckets learn of them. This is the
refit of `cce.Refit`, on a problem where it has a closed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.checks import check_range, check_type
from cce_lab.theory.factorise import factorise
from cce_lab.theory.least_squares import LeastSquares
from cce_lab.theory.sparse import SparseRun

if TYPE_CHECKING:
    from torch import Generator, Tensor

SMALLEST = 1e-300  # of a squared norm: an id that no example has wants what it has


def refit_cce(problem: LeastSquares, num_rows: int, *, num_steps: int, generator: Generator | None = None) -> SparseRun:
    """Run `num_steps` steps from `T_0 = 0` on, with `num_rows` clusters, which are all rows of the codebook."""
    check_type("problem", problem, LeastSquares, "LeastSquares")
    check_range("num_rows", num_rows, 1, 2**31)
    check_range("num_steps", num_steps, 1, 2**31)
    small = problem.reduced
    table = small.x.new_zeros(small.num_embeddings, small.embedding_dim)
    excesses = [small.excess(table)]
    for _ in range(num_steps):
        factor = factorise(wanted_rows(small, table), num_rows, generator=generator)
        codebook = small.solve(factor.after(small.x))
        table = factor.times(codebook)
        excesses.append(small.excess(table))
    return SparseRun(table, tuple(excesses), small.floor, factor, codebook)


def wanted_rows(problem: LeastSquares, table: Tensor) -> Tensor:
    """The row that each id would choose if all others stayed as they are in `table`, `(num_embeddings, dim)`."""
    sizes = problem.x.square().sum(0).clamp(min=SMALLEST)
    return table + (problem.x.T @ (problem.y - problem.x @ table)) / sizes.unsqueeze(1)
