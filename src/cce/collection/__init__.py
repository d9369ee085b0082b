"""Many features under one budget, looked up together."""

from cce.collection.plan import Plan, TablePlan, plan_tables
from cce.collection.tables import EmbeddingCollection

__all__ = ["EmbeddingCollection", "Plan", "TablePlan", "plan_tables"]
