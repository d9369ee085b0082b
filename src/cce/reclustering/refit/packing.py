"""Symmetric matrices, each value held once: of diagonal blocks the lower triangles, row after row.

A curvature of 16 dimensions has 256 values, of which 136 differ.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packed_size(dim: int, block_dim: int) -> int:
    """Values of the lower triangles of the diagonal blocks."""
    return dim * (block_dim + 1) // 2


def block_dim_of(size: int, dim: int) -> int:
    """How wide the blocks of so many packed values are."""
    return 2 * size // dim - 1


def pack(blocks: Tensor) -> Tensor:
    """Blocks along a diagonal, `(*s, dim, block_dim)`, to their lower triangles, `(*s, packed_size)`."""
    dim, block_dim = blocks.shape[-2:]
    row, column = torch.tril_indices(block_dim, block_dim)
    apart = blocks.reshape(*blocks.shape[:-2], dim // block_dim, block_dim, block_dim)
    return apart[..., row, column].flatten(-2)


def unpack(packed: Tensor, dim: int) -> Tensor:
    """Lower triangles `(*s, packed_size)` to the blocks, `(*s, dim, block_dim)`."""
    block_dim = block_dim_of(packed.shape[-1], dim)
    row, column = torch.tril_indices(block_dim, block_dim)
    places = torch.empty(block_dim, block_dim, dtype=torch.int64)
    places[row, column] = places[column, row] = torch.arange(len(row))
    triangles = packed.reshape(*packed.shape[:-1], dim // block_dim, len(row))
    return triangles.index_select(-1, places.flatten()).reshape(*packed.shape[:-1], dim, block_dim)
