"""What every model asks of the schema and the tables that it is made of."""

from __future__ import annotations

from cce.checks import check_number, check_type
from cce.collection import EmbeddingCollection
from cce.schema import Schema


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
