"""Tables that are a product `T = H · M`: a sparse H says which rows of the codebook M an id adds up."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from cce.embeddings.base import Embedding, check_weight
from cce.indexing.assignments import blocks
from cce.kernels import gather_sum

MAX_CG_STEPS = 100
BLOCK_NUMBERS = 1 << 21  # of the table that are looked at together
CG_TOLERANCE = 1e-6  # of the first residual's norm


class LinearEmbedding(Embedding):
    """A table `T = H · M` with the codebook M as its only looked-up parameter."""

    codebook: nn.Parameter  # (num_rows, width)

    @abstractmethod
    def lookup(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """H for ids `(n)`: codebook rows `(n, columns, terms)` and their weights, or None where all weights are 1."""

    def compose(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)`: the rows summed over terms, the columns side by side."""
        rows, weights = self.lookup(ids)
        return gather_sum(self.codebook, rows, weights, sparse=self.sparse)


class RandomEmbedding(LinearEmbedding):
    """A linear table whose H is drawn once (or computed) and never learned."""

    def approximate(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Least squares: the codebook M that minimises `‖H M − weight‖`, by conjugate gradients."""
        del generator  # H is drawn already
        check_weight(self, weight)
        with torch.no_grad():
            self.codebook.copy_(least_squares_codebook(self, weight))


def least_squares_codebook(table: LinearEmbedding, weight: Tensor) -> Tensor:
    """The smallest M that minimises `‖H M − weight‖`, never building H, which is as tall as the vocabulary."""
    solution = torch.zeros_like(table.codebook, dtype=torch.float64)
    residual = _transposed_product(table, weight)
    direction, size = residual.clone(), residual.square().sum()
    target = size * CG_TOLERANCE**2
    for _ in range(MAX_CG_STEPS):
        if size <= target:
            break
        image = _normal_product(table, direction)
        step = size / (direction * image).sum()
        solution += step * direction
        residual -= step * image
        previous, size = size, residual.square().sum()
        direction = residual + (size / previous) * direction
    return solution.to(table.codebook.dtype)


def _block_size(table: LinearEmbedding) -> int:
    return max(1, BLOCK_NUMBERS // table.embedding_dim)


def _transposed_product(table: LinearEmbedding, weight: Tensor) -> Tensor:
    """`Hᵀ · weight`."""
    total = torch.zeros_like(table.codebook, dtype=torch.float64)
    for block in blocks(table.num_embeddings, _block_size(table)):
        ids = block.to(weight.device)
        _scatter_add(total, table, ids, weight[ids].double())
    return total


def _normal_product(table: LinearEmbedding, codebook: Tensor) -> Tensor:
    """`Hᵀ · H · codebook`."""
    total = torch.zeros_like(codebook)
    for block in blocks(table.num_embeddings, _block_size(table)):
        ids = block.to(codebook.device)
        _scatter_add(total, table, ids, gather_sum(codebook, *table.lookup(ids)))
    return total


def _scatter_add(total: Tensor, table: LinearEmbedding, ids: Tensor, vectors: Tensor) -> None:
    rows, weights = table.lookup(ids)  # (n, columns, terms)
    pieces = vectors.view(*rows.shape[:2], 1, -1).expand(*rows.shape, -1)
    if weights is not None:
        pieces = pieces * weights.to(pieces.dtype).unsqueeze(-1)
    total.index_add_(0, rows.reshape(-1), pieces.reshape(-1, total.shape[1]))
