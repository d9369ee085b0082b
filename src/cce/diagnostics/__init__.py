"""Facts about tables: what they weigh, and whether their pointers have collapsed."""

from cce.diagnostics.entropy import entropies
from cce.diagnostics.memory import summary
from cce.diagnostics.table_collapse import Collapse, collapse

__all__ = ["Collapse", "collapse", "entropies", "summary"]
