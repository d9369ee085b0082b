"""What all models share: networks of linear layers (batch normalisation, ReLU and dropout after each hidden one), what
they ask of the schema and the tables that they are made of, and what they make of a batch.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_number, check_range, check_type
from cce.collection import EmbeddingCollection
from cce.schema import Batch, Schema


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes its running statistics where a batch of training has fewer than two rows."""

    def forward(self, values: Tensor) -> Tensor:
        """Normalised values `(batch, size)`; the last batch of an epoch may be a single row."""
        if self.training and len(values) < 2:
            return nn.functional.batch_norm(
                values, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(values)


def check_hidden(name: str, hidden: Sequence[int]) -> None:
    """Reject hidden sizes that are no list of positive ints."""
    check_type(name, hidden, (list, tuple), "a list of ints")
    for size in hidden:
        check_range(name, size, 1, 2**31)


def make_network(
    num_inputs: int,
    hidden: Sequence[int],
    num_outputs: int | None = None,
    *,
    dropout: float = 0.0,
    batch_norm: bool = False,
    random_bias: bool = False,
) -> nn.Sequential:
    """Hidden layers of the given sizes and, with `num_outputs`, a linear layer without ReLU at the end.

    Weights start as DLRM's do (Xavier, normal). Biases start at zero or, with `random_bias`, as DLRM's.
    """
    check_dropout(dropout)
    check_flag("batch_norm", batch_norm)
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise((num_inputs, *hidden)):
        layers += [make_linear(size_in, size_out, random_bias=random_bias)]
        layers += [BatchNorm(size_out)] if batch_norm else []
        layers += [nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    if num_outputs is not None:
        last = hidden[-1] if hidden else num_inputs
        layers += [make_linear(last, num_outputs, random_bias=random_bias)]
    return nn.Sequential(*layers)


def make_linear(num_inputs: int, num_outputs: int, *, random_bias: bool = False) -> nn.Linear:
    """One linear layer that starts as those of networks do."""
    linear = nn.Linear(num_inputs, num_outputs)
    nn.init.xavier_normal_(linear.weight)
    if random_bias:
        nn.init.normal_(linear.bias, std=(1 / num_outputs) ** 0.5)
    else:
        nn.init.zeros_(linear.bias)
    return linear


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
