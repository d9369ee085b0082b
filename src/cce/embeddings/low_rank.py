"""A table as a narrow table times a projection: the best one, by singular values."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 1 << 16  # rows taken to double precision at a time


def low_rank_factors(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """`(n, rank)` and `(rank, dim)` whose product is nearest to `weight` `(n, dim)`; `rank` is at most `dim`.

    From the `dim × dim` Gram matrix, so that a tall table costs one pass over it.
    """
    blocks = torch.split(weight, BLOCK)
    gram = torch.stack([block.double().T @ block.double() for block in blocks]).sum(0)
    _, vectors = torch.linalg.eigh(gram)  # ascending
    projection = vectors.flip(-1)[:, :rank]  # (dim, rank)
    narrow = torch.cat([(block.double() @ projection).to(weight.dtype) for block in blocks])
    return narrow, projection.T.to(weight.dtype)
