"""Dense CCE for least squares: the paper's Algorithm 1, in the form whose convergence its appendix proves.

From `T_0 = 0` on, every step sets the last table beside fresh noise and fits a codebook to both:

    H_i = [T_{i−1} | G_i],   M_i = argmin_M ‖X H_i M − Y‖²,   T_i = H_i M_i

`H` has k columns: d2 of the table and k − d2 of noise.

The random columns of dense CCE, in four kinds (the paper's appendix, "SVD aligned noise converges faster").

"iid" are standard normal values `G`. "smart" ones are aligned with X: with `X = UΣVᵀ` they are `VΣ⁻¹G`, so that `XG`
prefers no direction. In the "half" kinds the codebook is held to the form `[I | M']`, as in the proof of the theorem:
the last table is taken over as it is, and only noise is added to it.

Dense CCE for least squares that never holds `X`: the point of the paper's Algorithm 1, "but uses less memory".

A step reads the examples once, block by block. Of each block only `X H` is needed, k columns beside the d2 of `Y`, and
of all blocks only the triangle of a QR decomposition of both, `(k + d2)²` values: the codebook and the loss follow from
it. So a step takes `O(n (k + d2)²)` time beside the product `X H`, and memory for H, a block and a triangle.

The paper says `O(n k d2)` for a step. That leaves out `X H`, which takes `n · d1 · k` for a dense X, and is a gather of
rows where an example names a few ids; and it is the time to apply a codebook, not to fit one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from cce.checks import check_choice, check_range, check_type
from cce_lab.theory.least_squares import LeastSquares, Run, square

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


@dataclass(frozen=True)
class Examples:
    """Examples that can be read again and again, in blocks `(x, y)`.

    A block of X is a matrix `(n, num_embeddings)`, or int64 ids `(n, terms)`: a 1 in the column of each id.
    """

    blocks: Callable[[], Iterable[tuple[Tensor, Tensor]]]
    num_embeddings: int
    embedding_dim: int

    @classmethod
    def of(cls, problem: LeastSquares, block_size: int) -> Examples:
        """The examples of a problem that is in memory."""
        check_range("block_size", block_size, 1, 2**63)

        def blocks() -> Iterable[tuple[Tensor, Tensor]]:
            return zip(torch.split(problem.x, block_size), torch.split(problem.y, block_size), strict=True)

        return cls(blocks, problem.num_embeddings, problem.embedding_dim)


@dataclass(frozen=True)
class StreamedRun:
    """The last table, and `‖XT_i − Y‖²` of each from `T_1` on."""

    table: Tensor  # (num_embeddings, embedding_dim)
    losses: tuple[float, ...]


def streamed_cce(
    examples: Examples, num_rows: int, *, num_steps: int, generator: Generator | None = None
) -> StreamedRun:
    """Run dense CCE for `num_steps` passes over the examples, with codebooks of `num_rows` rows, `d1 > k > d2`."""
    check_type("examples", examples, Examples, "Examples")
    num_ids, dim = examples.num_embeddings, examples.embedding_dim
    check_range("num_rows", num_rows, dim + 1, num_ids)
    check_range("num_steps", num_steps, 1, 2**31)
    table, losses = torch.zeros(num_ids, dim, dtype=torch.float64), []
    for _ in range(num_steps):
        noise = torch.randn(num_ids, num_rows - dim, generator=generator, dtype=torch.float64)
        factor = torch.cat([table, noise], dim=1)  # H_i, (d1, k)
        codebook, loss = _fit(triangle_of(examples, factor), num_rows)
        table = factor @ codebook
        losses.append(loss)
    return StreamedRun(table, tuple(losses))


def triangle_of(examples: Examples, factor: Tensor) -> Tensor:
    """`R` of the QR decomposition of `[X H | Y]`, from one pass; Q is never kept."""
    triangle = factor.new_zeros(0, factor.shape[1] + examples.embedding_dim)
    for x, y in examples.blocks():
        seen = x.double() @ factor if x.is_floating_point() else factor[x].sum(1)
        rows = torch.cat([triangle, torch.cat([seen, y.double()], dim=1)])
        triangle = torch.linalg.qr(rows, mode="r").R
    return triangle


def _fit(triangle: Tensor, num_rows: int) -> tuple[Tensor, float]:
    """The codebook and its loss: `‖XHM − Y‖² = ‖R₁₁M − R₁₂‖² + ‖R₂₂‖²`."""
    features, target = triangle[:num_rows, :num_rows], triangle[:num_rows, num_rows:]
    codebook = torch.linalg.lstsq(features, target, driver="gelsd").solution
    return codebook, square(features @ codebook - target) + square(triangle[num_rows:, num_rows:])
