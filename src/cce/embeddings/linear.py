"""Tables that are a product `T = H · M`: a sparse H says which rows of the codebook M an id adds up."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from cce.embeddings.base import Embedding
from cce.embeddings.initialization import normal_
from cce.embeddings.options import CommonOptions
from cce.indexing import RowSource, Versioned, rows_of
from cce.kernels import Layout, Lookup

ID_TYPES = (torch.int32, torch.int64)


class RowEmbedding(Versioned, Embedding):
    """A table whose vectors are made of rows of one codebook, which it looks up with its own `Lookup`."""

    codebook: nn.Parameter  # (num_rows, width)

    def __init__(self, num_embeddings: int | None, embedding_dim: int, **common: Unpack[CommonOptions]) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        self.look_up = Lookup([self])

    @abstractmethod
    def layout(self) -> Layout:
        """What a lookup must know of the table."""

    def __getstate__(self) -> dict[str, Any]:
        """Drop the lookup: a copy builds its own, with other addresses."""
        return {name: value for name, value in self.__dict__.items() if name != "look_up"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.look_up = Lookup([self])


class LinearEmbedding(RowEmbedding):
    """A table `T = H · M` with the codebook M as its only looked-up parameter."""

    @abstractmethod
    def sources(self) -> tuple[int, int, Sequence[RowSource]]:
        """H: the number of columns, of terms in each, and what names their rows."""

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Variances of independent terms add up."""
        _, terms, _ = self.sources()
        normal_(self.codebook, variance=self.start_variance / terms, generator=generator)

    def weights(self, ids: Tensor) -> Tensor | None:
        """Weights `(n, columns, terms)` of the rows of ids `(n)`; None where all are 1."""
        return None

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights other than 1."""
        return False

    def layout(self) -> Layout:
        """H as a lookup takes it; where rows have weights, every row is a separate column."""
        columns, terms, sources = self.sources()
        num_rows, width = self.codebook.shape
        layout = Layout(self.num_embeddings, columns, terms, width, num_rows, tuple(sources), self.padding_idx)
        return layout.apart if self.is_weighted else layout

    def lookup(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """H for ids `(n)`: codebook rows `(n, columns, terms)` and their weights, or None where all weights are 1."""
        columns, terms, sources = self.sources()
        return rows_of(sources, ids).view(-1, columns, terms), self.weights(ids)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`; the lookup checks the ids and minds the padding."""
        if not isinstance(input, Tensor) or input.dtype not in ID_TYPES:
            return super().forward(input)  # to be rejected
        if input.dim() == 1:
            return self.embed(input)
        shape = (*input.shape, self.embedding_dim)
        return self.embed(input.reshape(-1), None if self.is_weighted else shape).view(shape)

    def embed(self, ids: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        """Vectors `(n, embedding_dim)`, or of `shape`: the rows summed over terms, the columns side by side."""
        vectors = self.look_up(ids, shape=shape)
        return self._weigh(vectors, ids) if self.is_weighted else vectors

    def _weigh(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Sum the rows of each column, times their weights."""
        columns, terms, _ = self.sources()
        weights = self.weights(ids.long())
        assert weights is not None
        pieces = rows.view(ids.shape[0], columns, terms, rows.shape[1] // (columns * terms))  # there may be no ids
        pieces = pieces * weights.to(rows.dtype).unsqueeze(-1)
        vectors = pieces.sum(dim=-2).flatten(start_dim=1)
        if self.padding_idx is None:
            return vectors
        return vectors.masked_fill((ids == self.padding_idx).unsqueeze(-1), 0)
