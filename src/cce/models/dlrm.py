"""DLRM: dense features through a network, dot products of all pairs of vectors, and a network on top.

Naumov et al., "Deep learning recommendation model for personalization and recommendation systems" (2019). Sizes are
those of the CCE paper.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.checks import check_range, check_type
from cce.models.parts import check_dropout, check_parts, check_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.collection import EmbeddingCollection
    from cce.schema import Batch, Schema


class DLRM(nn.Module):
    """A batch to logits `(batch)`.

    bottom: hidden sizes of the network of dense features, whose output is one more vector of `embedding_dim` values.
    top: hidden sizes of the network that takes this vector and the dot products of all pairs to the logit.

    dropout: share of each hidden layer's outputs that are left out at each step of training.

    Without dense features there is no bottom network, and the dot products are all that the top takes.
    """

    def __init__(
        self,
        schema: Schema,
        tables: EmbeddingCollection,
        *,
        bottom: Sequence[int] = (512, 256, 64),
        top: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_parts(schema, tables)
        check_dropout(dropout)
        num_dense, dim = len(schema.dense), tables.embedding_dim
        num_vectors = tables.num_features + (num_dense > 0)
        if num_vectors < 2:
            raise ValueError("model 'dlrm' needs two features, or one and dense features, for a dot product; got one.")
        if not num_dense:
            check_start("dlrm", tables)
        for name, hidden in (("bottom", bottom), ("top", top)):
            check_type(name, hidden, (list, tuple), "a list of ints")
        self.tables = tables
        self.bottom = _network((num_dense, *bottom, dim), "bottom", dropout, generator) if num_dense else None
        num_pairs = num_vectors * (num_vectors - 1) // 2
        num_inputs = num_pairs + (dim if num_dense else 0)
        self.top = _network((num_inputs, *top, 1), "top", dropout, generator)[:-1]  # no ReLU at last
        self.register_buffer("pairs", torch.tril_indices(num_vectors, num_vectors, -1), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(batch)`."""
        vectors = self.tables(batch.ids, batch.offsets)  # (B, F, D)
        if self.bottom is None:
            return self.top(self._interact(vectors)).squeeze(-1)  # type: ignore[no-any-return]
        self._check_dense(batch.dense)
        dense = self.bottom(batch.dense)
        products = self._interact(torch.cat([dense.unsqueeze(1), vectors.to(dense.dtype)], dim=1))
        return self.top(torch.cat([dense, products], dim=1)).squeeze(-1)  # type: ignore[no-any-return]

    def _check_dense(self, dense: Tensor) -> None:
        assert self.bottom is not None
        num_dense = self.bottom[0].in_features
        if dense.dim() != 2 or dense.shape[1] != num_dense:
            raise ValueError(f"dense must have shape (batch, {num_dense}), got {tuple(dense.shape)}.")

    def _interact(self, vectors: Tensor) -> Tensor:
        """The dot products of all pairs: `(B, V, D)` to `(B, V · (V - 1) / 2)`."""
        first, second = self.pairs  # type: ignore[misc]
        return (vectors @ vectors.transpose(1, 2))[:, first, second]


def _network(sizes: Sequence[int], name: str, dropout: float, generator: torch.Generator | None) -> nn.Sequential:
    """Linear layers, each followed by a ReLU, with dropout between them; they start as DLRM's do."""
    layers: list[nn.Module] = []
    for size in sizes[1:]:
        check_range(name, size, 1, 2**31)
    for num_inputs, num_outputs in pairwise(sizes):
        linear = nn.Linear(num_inputs, num_outputs)
        nn.init.normal_(linear.weight, std=(2 / (num_inputs + num_outputs)) ** 0.5, generator=generator)
        nn.init.normal_(linear.bias, std=(1 / num_outputs) ** 0.5, generator=generator)
        layers += [nn.Dropout(dropout)] if layers and dropout else []
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers)
