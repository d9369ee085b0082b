"""What every model asks of the schema and the tables that it is made of."""

from __future__ import annotations

from cce.checks import check_type
from cce.collection import EmbeddingCollection
from cce.schema import Schema


def check_parts(schema: Schema, tables: EmbeddingCollection) -> None:
    """Reject tables that are not those of the schema's features."""
    check_type("schema", schema, Schema, "a Schema")
    check_type("tables", tables, EmbeddingCollection, "an EmbeddingCollection")
    wanted = list(schema.vocabulary_sizes)
    if list(tables.features) != wanted:
        raise ValueError(f"tables must be of the features of the schema, {wanted}, got {list(tables.features)}.")
