"""Any torch model → the same model with smaller tables: `compress` before training, `finalize` after it."""

from cce.compression.compact import Finalized, FinalizedTable, finalize
from cce.compression.swap_tables import compress

__all__ = ["Finalized", "FinalizedTable", "compress", "finalize"]
