"""Tables that are a product `T = H · M`: a sparse H says which rows of the codebook M an id adds up."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cce.embeddings.base import MAX_IDS, Embedding, check_weight
from cce.indexing.assignments import blocks
from cce.indexing.facts import Versioned
from cce.indexing.sources import rows_of
from cce.kernels import Layout, Program, gather_sum, look_up
from cce.kernels.fused import look_up as look_up_all
from cce.kernels.fused import usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.indexing.sources import RowSource

ID_TYPES = (torch.int32, torch.int64)
MAX_CG_STEPS = 100
BLOCK_NUMBERS = 1 << 21  # of the table that are looked at together
CG_TOLERANCE = 1e-6  # of the first residual's norm


class LinearEmbedding(Versioned, Embedding):
    """A table `T = H · M` with the codebook M as its only looked-up parameter."""

    codebook: nn.Parameter  # (num_rows, width)

    @abstractmethod
    def sources(self) -> tuple[int, int, Sequence[RowSource]]:
        """H: the number of columns, of terms in each, and what names their rows."""

    def weights(self, ids: Tensor) -> Tensor | None:
        """Weights `(n, columns, terms)` of the rows of ids `(n)`; None where all are 1."""
        del ids
        return None

    @property
    def keeps_counts(self) -> bool:
        """Whether `count` does anything."""
        return False

    def count(self, ids: Tensor) -> None:
        """Take note of ids that are looked up; most tables need not."""

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights other than 1."""
        return False

    def layout(self) -> Layout:
        """H in the words of a lookup."""
        columns, terms, sources = self.sources()
        num_rows, width = self.codebook.shape
        num_ids = self.num_embeddings
        if self.check_ids is False and all(source.takes_any_id for source in sources):
            num_ids = MAX_IDS - 1
        return Layout(num_ids, columns, terms, width, num_rows, tuple(sources), self.padding_idx)

    def lookup(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """H for ids `(n)`: codebook rows `(n, columns, terms)` and their weights, or None where all weights are 1."""
        columns, terms, sources = self.sources()
        return rows_of(sources, ids).view(-1, columns, terms), self.weights(ids)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`; compiled loops check the ids and mind the padding themselves."""
        codebook = self.codebook
        if self.is_weighted or not usable((codebook,), input) or input.dtype not in ID_TYPES:
            return super().forward(input)
        ids = input.reshape(-1, 1).long()
        vectors = look_up_all(self.program(), ids, (codebook,), sparse=self.sparse)
        self.count(ids)  # after they were found to be right
        return vectors.view(*input.shape, self.embedding_dim)

    def compose(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)`: the rows summed over terms, the columns side by side."""
        self.count(ids)
        if self.is_weighted:
            return self._compose_weighted(ids)
        if usable((self.codebook,), ids):
            return look_up_all(self.program(), ids.unsqueeze(1), (self.codebook,), sparse=self.sparse)
        return look_up(self.layout(), self.codebook, ids, sparse=self.sparse)

    def program(self) -> Program:
        """The layout as a program for compiled lookups, made anew when a fact has moved."""
        known = _programs.get(self)
        if known is None or not known.is_fresh or known.shapes[0] != self.codebook.shape:
            known = _programs[self] = Program([self.layout()], watched=watched_modules(self))
        return known

    def _compose_weighted(self, ids: Tensor) -> Tensor:
        layout, weights = self.layout(), self.weights(ids)
        assert weights is not None
        pieces = look_up(layout.apart, self.codebook, ids, sparse=self.sparse)
        pieces = pieces.view(-1, layout.columns, layout.terms, layout.width)
        return (pieces * weights.to(pieces.dtype).unsqueeze(-1)).sum(dim=-2).flatten(start_dim=1)


_programs: WeakKeyDictionary[LinearEmbedding, Program] = WeakKeyDictionary()


def watched_modules(table: LinearEmbedding) -> list[Versioned]:
    """The table and all parts of it whose padding, checks, pointers or seeds a program has noted."""
    return [module for module in table.modules() if isinstance(module, Versioned)]


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
