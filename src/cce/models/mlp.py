"""A network on concatenated vectors: the plain deep model that others are compared with.

The deep part of Covington et al., "Deep neural networks for YouTube recommendations" (RecSys 2016), and of Cheng et
al., "Wide & deep learning for recommender systems" (DLRS 2016). Zhu et al., "Open benchmarking for click-through rate
prediction" (CIKM 2021) find it near the best of 24 models (there: DNN).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from cce.models.network import check_hidden, make_network
from cce.models.parts import check_parts, concatenate, concatenated_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from cce.collection import EmbeddingCollection
    from cce.schema import Batch, Schema


class MLP(nn.Module):
    """A batch to logits `(batch)`: a network on all vectors and dense values of a row, one after the other.

    hidden: sizes of the hidden layers.
    dropout: share of each hidden layer's outputs that are left out at each step of training.
    batch_norm: normalise each hidden layer over the batch, before its ReLU.
    """

    def __init__(
        self,
        schema: Schema,
        tables: EmbeddingCollection,
        *,
        hidden: Sequence[int] = (400, 400, 400),
        dropout: float = 0.0,
        batch_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_parts(schema, tables)
        check_hidden("hidden", hidden)
        self.tables = tables
        self.num_dense = len(schema.dense)
        size = concatenated_size(schema, tables)
        self.network = make_network(size, hidden, 1, dropout=dropout, batch_norm=batch_norm, generator=generator)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(batch)`."""
        vectors = self.tables(batch.ids, batch.offsets)  # (B, F, D)
        return self.network(concatenate(vectors, batch.dense, self.num_dense)).squeeze(-1)  # type: ignore[no-any-return]
