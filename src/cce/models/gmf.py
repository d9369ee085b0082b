"""Generalised matrix factorisation: a weighted dot product of two vectors.

He et al., "Neural collaborative filtering" (WWW 2017).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.collection import EmbeddingCollection
from cce.models.network import check_dropout, check_parts, check_start
from cce.schema import Batch, Schema


class GMF(nn.Module):
    """A batch of two features to logits `(batch)`: `w · (u ⊙ v) + b`, starting as the plain dot product.

    dropout: share of the products `u ⊙ v` that are left out at each step of training.
    """

    def __init__(self, schema: Schema, tables: EmbeddingCollection, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        check_parts(schema, tables)
        if len(schema.features) != 2:
            raise ValueError(f"model 'gmf' needs exactly 2 features, got {len(schema.features)}.")
        check_start("gmf", tables)
        self.tables = tables
        self.weight = nn.Parameter(torch.ones(tables.embedding_dim))
        self.bias = nn.Parameter(torch.zeros(()))
        self.dropout = dropout

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(batch)`; dense features are ignored."""
        products = self.tables(batch.ids, batch.offsets).prod(dim=1)
        return functional.dropout(products, self.dropout, self.training) @ self.weight + self.bias
