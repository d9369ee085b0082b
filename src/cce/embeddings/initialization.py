"""One starting distribution for every method.

Every value that a table gives out at the start has mean 0 and variance `1 / (3 · embedding_dim)`. This is the variance
of U(±1/√dim), from which the published CCE results were trained; DLRM's U(±1/√num_embeddings) would start a table of
10 million ids 800 times smaller than one of 16, and the N(0, 1) of the paper's pseudo-code would start dot products at
a scale of `√dim`. What a method multiplies or adds to make an output is scaled so that the output keeps the variance:
methods then differ in what they share, not in where they begin.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from cce.indexing import check_generator


def output_variance(embedding_dim: int) -> float:
    """The variance of every value of every table at the start."""
    return 1 / (3 * embedding_dim)


def normal_table(
    num_rows: int, width: int, *, variance: float, generator: torch.Generator | None = None
) -> nn.Parameter:
    """A trainable `(num_rows, width)` table of independent normal values."""
    check_generator(generator)
    table = torch.randn(num_rows, width, generator=generator, device="cpu")
    return nn.Parameter(table.mul_(math.sqrt(variance)))


def projection_table(narrow_dim: int, wide_dim: int, *, generator: torch.Generator | None = None) -> nn.Parameter:
    """A trainable `(narrow_dim, wide_dim)` projection that keeps the variance: random rows of squared norm wide/narrow.

    The rows are normalised, as there are too few of them for a random norm to average out.
    """
    check_generator(generator)
    rows = torch.randn(narrow_dim, wide_dim, generator=generator, device="cpu")
    return nn.Parameter(nn.functional.normalize(rows).mul_(math.sqrt(wide_dim / narrow_dim)))
