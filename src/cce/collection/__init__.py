"""Many features under one budget, looked up together."""

from cce.collection.features import TableDict, feature_name, readable_path
from cce.collection.plan import allocate_budget, plan_tables
from cce.collection.tables import EmbeddingCollection
