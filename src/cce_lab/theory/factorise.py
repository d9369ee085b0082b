"""A table as `A · M` with sparse A: k-means as a factorisation of matrices (the paper's appendix, "K-means as matrix
factorization").

k-means gives an `A` with a single 1 in each row. For more ones, columns are split into equal segments and each segment
is fitted to what the ones before leave over (residual quantisation). The other way is a random codebook: k random
vectors, of which every id takes the nearest. The authors' notes have it for runs of many steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.checks import check_choice, check_divides, check_range
from cce.clustering import kmeans, nearest_centroid
from cce_lab.theory.factor import SparseFactor, ones_at

if TYPE_CHECKING:
    from torch import Generator, Tensor

WAYS = ("k-means", "random-codebook")
BLOCK = 1024  # ids compared with a random codebook at a time


def factorise(
    table: Tensor,
    num_rows: int,
    *,
    num_ones: int = 1,
    way: str = "k-means",
    num_iterations: int = 50,  # paper, "K-means"
    generator: Generator | None = None,
) -> SparseFactor:
    """`A`, `(num_embeddings, num_rows)`, with `num_ones` ones in each row: which rows ids of `table` should share."""
    check_choice("way", way, WAYS)
    check_range("num_rows", num_rows, 1, 2**31)
    check_divides("num_ones", num_ones, "num_rows", num_rows)
    if way == "random-codebook":
        return ones_at(_nearest_random(table, num_rows, num_ones, generator), num_rows)
    left, rows = table, []
    for first in range(0, num_rows, num_rows // num_ones):
        assigned, means = _cluster(left, num_rows // num_ones, num_iterations, generator)
        left = left - means[assigned]
        rows.append(assigned + first)
    return ones_at(torch.stack(rows, dim=1), num_rows)


def _cluster(table: Tensor, num_rows: int, num_iterations: int, generator: Generator | None) -> tuple[Tensor, Tensor]:
    """The cluster of every row, and the centroids in float64."""
    size = float(table.abs().max()) or 1.0  # clustering works in float32: no value should be tiny there
    points = (table / size).float()
    fit = kmeans(points, num_rows, max_iter=num_iterations, generator=generator)
    return nearest_centroid(points, fit.centroids), fit.centroids.double() * size


def _nearest_random(table: Tensor, num_rows: int, num_ones: int, generator: Generator | None) -> Tensor:
    """The `num_ones` nearest of `num_rows` normal vectors, which are as large as the rows of the table are on average.

    The paper does not say how large; with vectors far larger than the table, all ids would choose the shortest one.
    """
    scale = table.square().mean().sqrt()
    codebook = scale * torch.randn(num_rows, table.shape[1], generator=generator, dtype=table.dtype)
    nearest = [torch.cdist(ids, codebook).topk(num_ones, largest=False).indices for ids in torch.split(table, BLOCK)]
    return torch.cat(nearest)
