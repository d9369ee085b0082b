"""A table as a narrow table times a projection: the best one, by singular values."""

from __future__ import annotations

import torch
from torch import Tensor


def low_rank_factors(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """`(n, rank)` and `(rank, dim)` whose product is nearest to `weight` `(n, dim)`; `rank` is at most `dim`.

    From the `dim × dim` Gram matrix, so that a tall table costs one pass over it.
    """
    wide = weight.double()
    _, vectors = torch.linalg.eigh(wide.T @ wide)  # ascending
    projection = vectors.flip(-1)[:, :rank].T  # (rank, dim)
    return (wide @ projection.T).to(weight.dtype), projection.to(weight.dtype)
