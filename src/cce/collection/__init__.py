"""Many features under one budget, looked up together."""

from cce.collection.names import TableDict, feature_name, readable_path
from cce.collection.plan import Plan, TablePlan, plan_tables
from cce.collection.tables import EmbeddingCollection

__all__ = ["EmbeddingCollection", "Plan", "TableDict", "TablePlan", "feature_name", "plan_tables", "readable_path"]
