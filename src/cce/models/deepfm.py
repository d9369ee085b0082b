"""DeepFM: a factorisation machine and a network on the same vectors, added.

Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction" (IJCAI 2017). The paper has a
weight for each id besides its vector; a table of such weights would be as long as the vocabulary. Here the weight of
an id is a linear function of its vector, one function for each feature, so that all that an id has is in its table.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cce.collection import EmbeddingCollection
from cce.models.network import check_dense, check_hidden, check_parts, make_network
from cce.schema import Batch, Schema


class DeepFM(nn.Module):
    """A batch to logits `(batch)`: `b + Σ wᵢ · vᵢ + Σ_{i<j} vᵢ · vⱼ + network(v₁, v₂, …)`.

    The vectors `vᵢ` are those of the features and, for each dense feature, its value times a learned vector.

    hidden: sizes of the hidden layers of the network.
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
    ) -> None:
        super().__init__()
        check_parts(schema, tables)
        check_hidden("hidden", hidden)
        self.tables = tables
        num_dense, dim = len(schema.dense), tables.embedding_dim
        self.dense_vectors = nn.Parameter(torch.empty(num_dense, dim)) if num_dense else None
        if self.dense_vectors is not None:
            nn.init.normal_(self.dense_vectors, std=(1 / (3 * dim)) ** 0.5)  # that of the tables
        num_fields = tables.num_features + num_dense
        self.first_order = nn.Parameter(torch.zeros(num_fields, dim))
        self.network = make_network(num_fields * dim, hidden, 1, dropout=dropout, batch_norm=batch_norm)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(batch)`; the network's last bias is that of the sum."""
        vectors = self._fields(self.tables(batch.ids, batch.offsets), batch.dense)  # (B, F + dense, D)
        linear = (vectors * self.first_order).sum((1, 2))
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return linear + pairs + self.network(vectors.flatten(1)).squeeze(-1)  # type: ignore[no-any-return]

    def _fields(self, vectors: Tensor, dense: Tensor) -> Tensor:
        if self.dense_vectors is None:
            return vectors
        check_dense(dense, len(self.dense_vectors))
        scaled = dense.unsqueeze(-1) * self.dense_vectors  # (B, dense, D)
        return torch.cat([vectors, scaled.to(vectors.dtype)], dim=1)
