"""Facts about tables: what they weigh, and whether their pointers have collapsed."""

from cce.diagnostics.collapse import Collapse, collapse
from cce.diagnostics.entropy import entropies
from cce.diagnostics.memory import Summary, TableSummary, summary

__all__ = ["Collapse", "Summary", "TableSummary", "collapse", "entropies", "summary"]
