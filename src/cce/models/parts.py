"""What every model asks of the schema and the tables that it is made of, and what it makes of a batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cce.checks import check_number, check_type
from cce.collection import EmbeddingCollection
from cce.schema import Batch, Schema


def check_parts(schema: Schema, tables: EmbeddingCollection) -> None:
    """Reject tables that are not those of the schema's features."""
    check_type("schema", schema, Schema, "a Schema")
    check_type("tables", tables, EmbeddingCollection, "an EmbeddingCollection")
    wanted = list(schema.vocabulary_sizes)
    if list(tables.features) != wanted:
        raise ValueError(f"tables must be of the features of the schema, {wanted}, got {list(tables.features)}.")


def check_start(model: str, tables: EmbeddingCollection) -> None:
    """Reject tables that all start at zero, for a model of nothing but products of them: no gradient ever leaves it."""
    if all(getattr(table, "start_scale", None) == "zero" for table in tables.tables.values()):
        raise ValueError(
            f"start_scale must not be 'zero' for all tables of model {model!r}: products of zeros have no gradient."
        )


def check_dropout(dropout: float) -> None:
    """Reject a share that does not lie in [0, 1)."""
    check_number("dropout", dropout)
    if dropout >= 1:
        raise ValueError(f"dropout must lie in [0, 1), got {dropout}.")


def check_dense(dense: Tensor, num_dense: int) -> None:
    """Reject dense values that are not one row of `num_dense` a row of the batch."""
    if dense.dim() != 2 or dense.shape[1] != num_dense:
        raise ValueError(f"dense must have shape (batch, {num_dense}), got {tuple(dense.shape)}.")


class ConcatenatingModel(nn.Module):
    """A model whose input is all vectors of a row one after the other, then its dense values: `num_values` of them."""

    def __init__(self, schema: Schema, tables: EmbeddingCollection) -> None:
        super().__init__()
        check_parts(schema, tables)
        self.tables, self.num_dense = tables, len(schema.dense)
        self.num_values = tables.num_features * tables.embedding_dim + self.num_dense

    def concatenate(self, batch: Batch) -> Tensor:
        """The input `(B, num_values)`."""
        vectors: Tensor = self.tables(batch.ids, batch.offsets)  # (B, F, D)
        values = vectors.flatten(1)
        if not self.num_dense:
            return values
        check_dense(batch.dense, self.num_dense)
        return torch.cat([values, batch.dense.to(values.dtype)], dim=1)
