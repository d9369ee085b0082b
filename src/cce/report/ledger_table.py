"""The memory ledger: a line for each table of each series and budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.report.tables import Cell, Column, Table, ratio_cell
from cce.text import format_bytes

if TYPE_CHECKING:
    from cce.records import RunRecord
    from cce.report.groups import Group

WORDS = ("series", "budget", "table", "method")
NUMBERS = ("ids", "params", "codebook", "pointers", "optimizer", "fewer params", "fewer bytes")
SUMMED = (
    *("num_embeddings", "num_params", "codebook_nbytes", "pointer_nbytes", "optimizer_nbytes"),
    *("full_params", "full_nbytes", "nbytes"),
)


def ledger_table(group: Group) -> Table:
    """All tables of the run of the lowest seed; seeds weigh the same."""
    columns = [*(Column(name, is_text=True) for name in WORDS), *(Column(name) for name in NUMBERS)]
    rows = [
        [Cell(budget.series), Cell(budget.label), *cells]
        for budget in group.budgets
        for cells in ledger_rows(budget.first)
    ]
    return Table(f"{group.slug}-ledger", "Memory ledger", columns, rows)


def ledger_rows(record: RunRecord) -> list[list[Cell]]:
    """A line for each table, the largest first, and one for all of them; none without a ledger."""
    tables = sorted(record.tables, key=lambda table: -(table.get("full_params") or 0))
    total: dict[str, Any] = {name: sum(table.get(name) or 0 for table in tables) for name in SUMMED}
    return [_row(table) for table in ([*tables, total | {"name": "all tables"}] if tables else [])]


def _row(table: dict[str, Any]) -> list[Cell]:
    counts = [table.get(name) or 0 for name in ("num_embeddings", "num_params")]
    weights = [table.get(name) or 0 for name in ("codebook_nbytes", "pointer_nbytes", "optimizer_nbytes")]
    return [
        Cell(str(table.get("name", ""))),
        Cell(str(table.get("method", ""))),
        *(Cell(count, f"{count:,}") for count in counts),
        *(Cell(weight, format_bytes(weight)) for weight in weights),
        ratio_cell(table.get("full_params"), table.get("num_params")),
        ratio_cell(table.get("full_nbytes"), table.get("nbytes")),
    ]
