"""The start of every table: values of mean 0, and of a variance that `start_scale` names, the same for every method.

- `"uniform"`: variance `1 / (3 · embedding_dim)` for every id, that of U(±1/√dim). The CCE paper's start is another:
  its code draws both of the tables that add up from U(±1/√dim), so that vectors have twice that variance, and its
  pseudo-code draws both from N(0, 1). The method `cce-paper` offers these two (`init`), and this one if it is told.
- `"dlrm"`: variance `1 / (3 · num_embeddings)`, that of U(±1/√n), as DLRM starts the table of a feature with `n` ids.
  Ids that are seen once or never keep their start, and in a large table such ids are many: a small start is less noise.
- `"zero"`: every vector is exactly zero.
- a number above 0: the standard deviation of every value.

What a method multiplies or adds to make an output is scaled so that the output has the variance: methods then differ in
what they share, not in where they begin. Where vectors are products (ce-mult, tt, dhe, low-rank, mixed-dim, collide),
one factor alone carries the scale, and the others start as with "uniform". If all shrank, each would shrink the
gradients of the others, and zero would be a saddle that no gradient leaves. The random numbers that are drawn do not
depend on the scale, so tables of one seed have the same hash functions and pointers at any start.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from cce.indexing import check_generator

StartScale = Literal["uniform", "dlrm", "zero"] | float


def output_variance(embedding_dim: int) -> float:
    """The variance of every value of a table that starts as "uniform"."""
    return 1 / (3 * embedding_dim)


def start_variance(num_embeddings: int, embedding_dim: int, start_scale: StartScale) -> float:
    """The variance of every value of a table at the start."""
    if not isinstance(start_scale, str):
        return float(start_scale) ** 2
    named = {"uniform": output_variance(embedding_dim), "dlrm": 1 / (3 * num_embeddings), "zero": 0.0}
    return named[start_scale]


@torch.no_grad()
def scale_factor(factor: Tensor, variance: float, embedding_dim: int) -> None:
    """Scale one factor of a product, of which all were drawn for "uniform", so that the product has `variance`."""
    factor.mul_(math.sqrt(variance / output_variance(embedding_dim)))


def normal_table(
    num_rows: int, width: int, *, variance: float, generator: torch.Generator | None = None
) -> nn.Parameter:
    """A trainable `(num_rows, width)` table of independent normal values."""
    check_generator(generator)
    table = torch.randn(num_rows, width, generator=generator, device="cpu")
    return nn.Parameter(table.mul_(math.sqrt(variance)) if variance > 0 else table.zero_())


def projection_table(narrow_dim: int, wide_dim: int, *, generator: torch.Generator | None = None) -> nn.Parameter:
    """A trainable `(narrow_dim, wide_dim)` projection that keeps the variance: random rows of squared norm wide/narrow.

    The rows are normalised, as there are too few of them for a random norm to average out.
    """
    check_generator(generator)
    rows = torch.randn(narrow_dim, wide_dim, generator=generator, device="cpu")
    return nn.Parameter(nn.functional.normalize(rows).mul_(math.sqrt(wide_dim / narrow_dim)))
