"""Many features under one budget, looked up together."""

from cce.collection.baked import BakedCollection, bake_model, bake_schema, find_words
from cce.collection.names import TableDict, feature_name, readable_path
from cce.collection.plan import plan_tables, share_out
from cce.collection.tables import EmbeddingCollection

__all__ = [
    "BakedCollection",
    "EmbeddingCollection",
    "TableDict",
    "bake_model",
    "bake_schema",
    "feature_name",
    "find_words",
    "plan_tables",
    "readable_path",
    "share_out",
]
