"""Diagnostics of tables: their parameters and bytes, and whether their pointers have collapsed."""

from cce.diagnostics.memory import gradient_nbytes, summary
from cce.diagnostics.table_collapse import Collapse, diagnose_collapse, diagnose_tables, pointer_entropies

__all__ = [
    "Collapse",
    "diagnose_collapse",
    "diagnose_tables",
    "gradient_nbytes",
    "pointer_entropies",
    "summary",
]
