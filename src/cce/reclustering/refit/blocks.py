"""Symmetric matrices by their diagonal blocks: packed as lower triangles, and completed between the blocks.

A Hessian of 16 dimensions has 256 values, of which 136 differ. Of wider vectors each id has diagonal blocks of its own,
and what lies between them is taken from all ids: with `C`, the sum of all Hessians, and the Cholesky factors `L` of an
id's blocks and `K` of those of `C`, its Hessian is taken to be `L (K⁻¹ C K⁻ᵀ) Lᵀ`: its own blocks, correlated as those
of all ids are. If ids differ only in how often they occur, this is exact. Blocks that were taken for independent would
all explain the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.compiled import available, compile_loops

if TYPE_CHECKING:
    import numpy as np

SHARED = 0.3  # of a block is that of all ids: few rows say little about many dimensions
FLAT = 1e-3  # of the mean diagonal is added in all directions, so that all matrices have Cholesky factors
SMALLEST_VALUE = 1e-12
CG_STEPS = 8
DAMPING = (1e-6, 1e-4, 1e-2)  # of the mean diagonal, added where a matrix has no Cholesky factor
STAYS = 1e30  # a diagonal so large that nothing moves


def packed_size(dim: int, block_dim: int) -> int:
    """Values of the lower triangles of the diagonal blocks."""
    return dim * (block_dim + 1) // 2


def block_dim_of(size: int, dim: int) -> int:
    """The width of the blocks whose packed size this is."""
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
    triangles = packed.reshape(-1, len(row))
    if available:
        blocks = torch.empty(len(triangles), places.numel())
        _unpack(triangles.numpy(), places.flatten().numpy(), blocks.numpy())
    else:
        blocks = triangles[:, places.flatten()]
    return blocks.view(*packed.shape[:-1], dim, block_dim)


@compile_loops
def _unpack(triangles: np.ndarray, places: np.ndarray, blocks: np.ndarray) -> None:
    for index in range(len(triangles)):
        for at in range(len(places)):
            blocks[index, at] = triangles[index, places[at]]


def cholesky(matrices: Tensor) -> Tensor:
    """Cholesky factors of any matrices: damped where they have none, and where that fails so large that ids stay."""
    lower, info = torch.linalg.cholesky_ex(matrices)
    for damping in (*DAMPING, None):
        bad = (info > 0) | ~lower.diagonal(dim1=-2, dim2=-1).isfinite().all(-1)  # what is not finite reaches it
        if not bool(bad.any()):
            break
        own = matrices[bad] if matrices.dim() > 2 else matrices
        eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        mean = own.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].clamp(min=SMALLEST_VALUE)
        tried = STAYS * eye.expand_as(own) if damping is None else own + damping * mean * eye
        found, problems = torch.linalg.cholesky_ex(tried)
        lower, info = (found, problems) if matrices.dim() == 2 else (lower.clone(), info.clone())
        if matrices.dim() > 2:
            lower[bad], info[bad] = found, problems
    factors: Tensor = lower
    return factors


def diagonal_blocks(matrix: Tensor, block_dim: int) -> Tensor:
    """What lies in the blocks along the diagonal, `(dim, block_dim)`: of each row the part within its block."""
    num_blocks = len(matrix) // block_dim
    blocks = matrix.view(num_blocks, block_dim, num_blocks, block_dim).diagonal(dim1=0, dim2=2)
    return blocks.permute(2, 0, 1).reshape(len(matrix), block_dim)


def block_diagonal(blocks: Iterable[Tensor]) -> Tensor:
    """A matrix with these blocks along its diagonal."""
    return torch.block_diag(*blocks)  # type: ignore[no-untyped-call,no-any-return]


def solve_completed(hessians: Tensor, common: Tensor, precision: Tensor, right_side: Tensor) -> Tensor:
    """The solutions `(n, dim)` of `(A + Λ) x = b`, by conjugate gradients from the solutions of the blocks.

    hessians: the diagonal blocks of each A, `(n, dim, block_dim)`.
    common: the sum of the A of all ids, `(dim, dim)`.
    precision: the diagonal blocks of Λ, `(dim, block_dim)`; it has no others.
    right_side: b `(n, dim)`.
    """
    dim, block_dim = precision.shape
    common = common + FLAT * common.diagonal().mean().clamp(min=SMALLEST_VALUE) * torch.eye(dim)
    shared = diagonal_blocks(common, block_dim).view(-1, block_dim, block_dim)
    blocks = _shrunk(hessians.view(-1, *shared.shape), shared)
    lower, correlations = cholesky(blocks), _correlations(common, shared)
    prior = precision.view_as(shared)
    inverse = torch.cholesky_inverse(cholesky(blocks + prior))

    def multiply(vectors: Tensor) -> Tensor:
        return _times(lower, _times(lower.mT, vectors) @ correlations) + _times(prior, vectors)

    return _conjugate_gradients(multiply, lambda vectors: _times(inverse, vectors), right_side)


def _shrunk(blocks: Tensor, shared: Tensor) -> Tensor:
    """The blocks of each id `(n, blocks, block_dim, block_dim)`, a part of the way to those of all, as large as its."""
    sizes = blocks.diagonal(dim1=2, dim2=3).sum((1, 2)).clamp(min=SMALLEST_VALUE)
    shares = sizes / shared.diagonal(dim1=1, dim2=2).sum()
    return torch.lerp(blocks, shares[:, None, None, None] * shared, SHARED)


def _correlations(common: Tensor, blocks: Tensor) -> Tensor:
    """`K⁻¹ C K⁻ᵀ`, with ones along the diagonal."""
    lower = block_diagonal(cholesky(blocks))
    half = torch.linalg.solve_triangular(lower, common, upper=False)
    found: Tensor = torch.linalg.solve_triangular(lower, half.mT, upper=False)
    return found


def _times(blocks: Tensor, vectors: Tensor) -> Tensor:
    """Blocks `([n,] blocks, block_dim, block_dim)`, each times its part of a vector `(n, dim)`."""
    return (blocks @ vectors.view(len(vectors), -1, blocks.shape[-1], 1)).view_as(vectors)


def _conjugate_gradients(
    multiply: Callable[[Tensor], Tensor], precondition: Callable[[Tensor], Tensor], right_side: Tensor
) -> Tensor:
    """Where `multiply` gives the right side, nearly, for each row by itself."""
    tiny = torch.finfo(right_side.dtype).tiny
    found, left = torch.zeros_like(right_side), right_side
    direction = near = precondition(left)
    size = (left * near).sum(1, keepdim=True)
    for _ in range(CG_STEPS):
        image = multiply(direction)
        step = size / (direction * image).sum(1, keepdim=True).clamp(min=tiny)
        found, left = found + step * direction, left - step * image
        near = precondition(left)
        before, size = size, (left * near).sum(1, keepdim=True)
        direction = near + size / before.clamp(min=tiny) * direction
    return found
