"""Sparse CCE for least squares: the paper's Algorithm 2, and the baseline it is compared with.

From `T_0 = 0` on, every step clusters the last table, sets a count sketch beside the clusters and fits a codebook:

    H_i = [A | C],   A = kmeans(T_{i−1}),   C ~ countsketch(),   M_i = argmin_M ‖X H_i M − Y‖²,   T_i = H_i M_i

`A` and `C` have k columns each, so the codebook has 2k rows.

Count sketch is a random H with signs (Charikar, Chen and Farach-Colton, 2002; the paper's appendix "Hashing"): row `i`
has `s(i)` in column `h(i)`. With several values in a row, columns are split into equal segments with a hash function
into each, as the analysis of sparse Johnson–Lindenstrauss advises (Cohen, Jayram and Nelson, 2018).

k-means gives an `A` with a single 1 in each row (the paper's appendix, "K-means as matrix factorization"). For more
ones, each segment of columns is fitted to what the ones before leave over (residual quantisation). The other way, from
the authors' notes, is a random codebook: k random vectors, of which every id takes the nearest.

With exact refits there is no sketch. With all other ids fixed, the row that id `i` wants is known exactly:

    w_i = t_i + x_iᵀ(Y − XT) / ‖x_i‖²        x_i: the column of X that belongs to the id

A step asks every id, clusters the answers, `A = kmeans(W)`, and fits the codebook. This is the refit of
`cce.refit`, on a problem where it has a closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from cce.checks import check_choice, check_divides, check_range
from cce.clustering import kmeans, nearest_centroid
from cce.indexing import MultiplyShift
from cce.kernels import gather_sum
from cce_lab.theory.least_squares import LeastSquares, Run


@dataclass(frozen=True)
class SparseFactor:
    """Row `i` of H has `weights[i, t]` in column `rows[i, t]`, for each term t; terms with the same column add up."""

    rows: Tensor  # (num_embeddings, terms), int64: which rows of the codebook an id uses
    weights: Tensor  # (num_embeddings, terms), float64
    num_rows: int  # of the codebook, k

    def times(self, codebook: Tensor) -> Tensor:
        """`H · M`: a sum of rows of the codebook for each id."""
        return gather_sum(codebook, self.rows.unsqueeze(1), self.weights.unsqueeze(1))

    def after(self, x: Tensor) -> Tensor:
        """`X · H`, `(n, num_rows)`: every column of X is added to the columns its id points to."""
        summed = x.new_zeros(self.num_rows, x.shape[0])
        for rows, weights in zip(self.rows.unbind(1), self.weights.unbind(1), strict=True):
            summed.index_add_(0, rows, x.T * weights.unsqueeze(1))
        return summed.T

    def beside(self, other: SparseFactor) -> SparseFactor:
        """`[H | other]`."""
        return SparseFactor(
            torch.cat([self.rows, other.rows + self.num_rows], dim=1),
            torch.cat([self.weights, other.weights], dim=1),
            self.num_rows + other.num_rows,
        )


def ones_at(rows: Tensor, num_rows: int) -> SparseFactor:
    """A factor of ones at these rows, `(num_embeddings, terms)`."""
    return SparseFactor(rows, torch.ones(rows.shape, dtype=torch.float64, device=rows.device), num_rows)


def count_sketch(
    num_embeddings: int, num_rows: int, *, num_ones: int = 1, generator: Generator | None = None
) -> SparseFactor:
    """`num_ones` random signs in each row, one in each segment of the `num_rows` columns."""
    check_range("num_embeddings", num_embeddings, 1, 2**31)
    check_range("num_rows", num_rows, 1, 2**31)
    check_divides("num_ones", num_ones, "num_rows", num_rows)
    ids = torch.arange(num_embeddings)
    rows = MultiplyShift(num_ones, num_rows // num_ones, generator=generator).stacked(ids)
    signs = MultiplyShift(num_ones, 2, generator=generator).signs(ids)
    return SparseFactor(rows, signs.double(), num_rows)


WAYS = ("k-means", "random-codebook")


def factorise(
    table: Tensor, num_rows: int, *, num_ones: int = 1, way: str = "k-means", generator: Generator | None = None
) -> SparseFactor:
    """`A`, `(num_embeddings, num_rows)`, with `num_ones` ones in each row: which rows ids of `table` should share."""
    check_choice("way", way, WAYS)
    check_range("num_rows", num_rows, 1, 2**31)
    check_divides("num_ones", num_ones, "num_rows", num_rows)
    if way == "random-codebook":
        return ones_at(_nearest_random(table, num_rows, num_ones, generator), num_rows)
    left, rows = table, []
    for first in range(0, num_rows, num_rows // num_ones):
        assigned, means = _cluster(left, num_rows // num_ones, generator)
        left = left - means[assigned]
        rows.append(assigned + first)
    return ones_at(torch.stack(rows, dim=1), num_rows)


def _cluster(table: Tensor, num_rows: int, generator: Generator | None) -> tuple[Tensor, Tensor]:
    """The cluster of every row, and the centroids in float64."""
    size = float(table.abs().max()) or 1.0  # clustering works in float32: no value should be tiny there
    points = (table / size).float()
    fit = kmeans(points, num_rows, max_iter=50, generator=generator)  # paper, "K-means"
    return nearest_centroid(points, fit.centroids), fit.centroids.double() * size


def _nearest_random(table: Tensor, num_rows: int, num_ones: int, generator: Generator | None) -> Tensor:
    """The `num_ones` nearest of `num_rows` normal vectors, which are as large as the rows of the table are on average.

    The paper does not say how large; with vectors far larger than the table, all ids would choose the shortest one.
    """
    scale = table.square().mean().sqrt()
    codebook = scale * torch.randn(num_rows, table.shape[1], generator=generator, dtype=table.dtype)
    return torch.cdist(table, codebook).topk(num_ones, largest=False).indices


def sparse_cce(
    problem: LeastSquares,
    num_rows: int,
    *,
    num_steps: int,
    num_ones: int = 1,
    way: str = "k-means",
    start: Tensor | None = None,
    generator: Generator | None = None,
) -> Run:
    """Run `num_steps` steps with `num_rows` clusters and as many rows of sketch; rows of A and C have `num_ones`.

    `start` is another `T_0` than zero, `(num_embeddings, embedding_dim)`.
    """

    def clusters_and_sketch(small: LeastSquares, table: Tensor) -> SparseFactor:
        clusters = factorise(table, num_rows, num_ones=num_ones, way=way, generator=generator)
        sketch = count_sketch(small.num_embeddings, num_rows, num_ones=num_ones, generator=generator)
        return clusters.beside(sketch)

    return _run(problem, clusters_and_sketch, num_steps, start)


def refit_cce(problem: LeastSquares, num_rows: int, *, num_steps: int, generator: Generator | None = None) -> Run:
    """Run `num_steps` steps from `T_0 = 0` on, with `num_rows` clusters, which are all rows of the codebook."""
    return _run(problem, lambda *now: factorise(wanted_rows(*now), num_rows, generator=generator), num_steps)


def clustered_optimum(
    problem: LeastSquares, num_rows: int, *, num_ones: int = 1, generator: Generator | None = None
) -> Run:
    """The baseline: find the best table in full, cluster it, and fit the `num_rows` rows of its codebook once more."""
    options: dict[str, Any] = {"num_ones": num_ones, "generator": generator}
    return _run(problem, lambda _, table: factorise(table, num_rows, **options), 1, problem.reduced.optimum)


def _run(
    problem: LeastSquares,
    factor_of: Callable[[LeastSquares, Tensor], SparseFactor],
    num_steps: int,
    start: Tensor | None = None,
) -> Run:
    """Steps that make `H` of the last table, and fit a codebook to it."""
    check_range("num_steps", num_steps, 1, 2**31)
    small = problem.reduced
    table = small.x.new_zeros(small.num_embeddings, small.embedding_dim) if start is None else start.double()
    excesses = [small.excess(table)]
    for _ in range(num_steps):
        factor = factor_of(small, table)
        table = factor.times(small.solve(factor.after(small.x)))
        excesses.append(small.excess(table))
    return Run(table, tuple(excesses), small.floor)


SMALLEST = 1e-300  # of a squared norm: an id that no example has wants what it has


def wanted_rows(problem: LeastSquares, table: Tensor) -> Tensor:
    """The row that each id would choose if all others stayed as they are in `table`, `(num_embeddings, dim)`."""
    sizes = problem.x.square().sum(0).clamp(min=SMALLEST)
    return table + (problem.x.T @ (problem.y - problem.x @ table)) / sizes.unsqueeze(1)
