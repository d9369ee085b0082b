"""Where runs ran: a column for each environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.report.tables import Cell, Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cce.records import RunRecord


def environment_table(records: Iterable[RunRecord]) -> Table:
    """A column for each environment that runs ran in, with the number of runs."""
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for record in records:
        facts = tuple((str(name), "" if value is None else str(value)) for name, value in record.environment.items())
        found[facts] = found.get(facts, 0) + 1
    names = list(dict.fromkeys(name for facts in found for name, _ in facts))
    columns = [Column("", is_text=True), *(Column(f"environment {i + 1}", is_text=True) for i in range(len(found)))]
    rows = [[Cell("runs"), *(Cell(count) for count in found.values())]]
    rows += [[Cell(name), *(Cell(dict(facts).get(name, "")) for facts in found)] for name in names]
    return Table("environment", "Environment", columns, rows)
