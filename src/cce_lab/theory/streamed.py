"""Dense CCE for least squares that never holds `X`: the point of the paper's Algorithm 1, "but uses less memory".

A step reads the examples once, block by block. Of each block only `X H` is needed, k columns beside the d2 of `Y`, and
of all blocks only the triangle of a QR decomposition of both, `(k + d2)²` values: the codebook and the loss follow from
it. So a step takes `O(n (k + d2)²)` time beside the product `X H`, and memory for H, a block and a triangle.

The paper says `O(n k d2)` for a step. That leaves out `X H`, which takes `n · d1 · k` for a dense X, and is a gather of
rows where an example names a few ids; and it is the time to apply a codebook, not to fit one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cce.checks import check_range, check_type
from cce_lab.theory.least_squares import LeastSquares, square

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Generator, Tensor


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
