"""`H`, d1 × k, with a few nonzero values in each row: stored as their column indices, never as a matrix.

Count sketch is a random one with signs (Charikar, Chen and Farach-Colton, 2002; the paper's appendix "Hashing"): row
`i` has `s(i)` in column `h(i)`. With several values in a row, columns are split into equal segments with a hash
function into each, as the analysis of sparse Johnson–Lindenstrauss advises (Cohen, Jayram and Nelson, 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cce.checks import check_divides, check_range
from cce.indexing import MultiplyShift
from cce.kernels import gather_sum

if TYPE_CHECKING:
    from torch import Generator, Tensor


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

    def gram(self) -> Tensor:
        """`HᵀH`, `(num_rows, num_rows)`."""
        product = self.weights.new_zeros(self.num_rows, self.num_rows)
        for rows, weights in zip(self.rows.unbind(1), self.weights.unbind(1), strict=True):
            for others, other_weights in zip(self.rows.unbind(1), self.weights.unbind(1), strict=True):
                product.index_put_((rows, others), weights * other_weights, accumulate=True)
        return product

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
