"""Facts about tables: what they weigh, and whether their pointers have collapsed."""

from cce.diagnostics.entropy import entropies
from cce.diagnostics.memory import Summary, TableSummary, summary
from cce.diagnostics.table_collapse import Collapse, collapse

__all__ = ["Collapse", "Summary", "TableSummary", "collapse", "entropies", "summary"]
