"""Many features under one budget, looked up together."""

from cce.collection.features import TableDict, feature_name, readable_path
from cce.collection.plan import plan_tables, share_out
from cce.collection.tables import EmbeddingCollection

__all__ = ["EmbeddingCollection", "TableDict", "feature_name", "plan_tables", "readable_path", "share_out"]
