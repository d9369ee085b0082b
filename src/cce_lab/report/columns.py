"""Scores by number of columns: methods side by side at equal columns, and each at its best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce_lab.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from cce_lab.report.groups import Group

BEST = "best"


def columns_of(config: dict[str, Any]) -> int | None:
    """The columns that a run was asked for: by their number, or by the length of ROBE's blocks; None if by neither."""
    options = config.get("method_options") or {}
    if isinstance(options.get("num_columns"), int):
        return int(options["num_columns"])
    block, dim = options.get("block_size"), config.get("embedding_dim")
    return dim // block if isinstance(block, int) and isinstance(dim, int) and block > 0 else None


def columns_table(group: Group) -> Table:
    """A line for each budget and number of columns, and one for the best; no lines where columns were no axis."""
    scores: dict[str, dict[int, dict[str, float]]] = {}  # by budget, columns and method
    for budget in group.budgets:
        columns, found = columns_of(budget.first.config), budget.over_seeds(group.leading.name)
        if columns is not None and found is not None:
            best = scores.setdefault(budget.label, {}).setdefault(columns, {})
            method = budget.first.method
            best[method] = min(found.mean, best.get(method, found.mean), key=group.leading.loss)
    methods = sorted({method for by_columns in scores.values() for found in by_columns.values() for method in found})
    numbers = {columns for by_columns in scores.values() for columns in by_columns}
    heads = [Column("budget", is_text=True), Column("columns"), *(Column(method) for method in methods)]
    rows = [row for label, found in scores.items() for row in _rows(group, label, found, methods)]
    return Table(f"{group.slug}-columns", "Columns", heads, rows if len(numbers) > 1 else [])


def _rows(group: Group, label: str, scores: dict[int, dict[str, float]], methods: list[str]) -> list[list[Cell]]:
    """The lines of a budget; last, the best score of each method, with its columns."""
    info = group.leading
    rows = []
    for columns in sorted(scores):
        cells = [_cell(group, scores[columns].get(method)) for method in methods]
        rows.append([Cell(label), Cell(columns), *cells])
    best = []
    for method in methods:
        found = [(info.loss(each[method]), columns, each[method]) for columns, each in scores.items() if method in each]
        _, columns, score = min(found, default=(0.0, 0, None))
        best.append(Cell(None) if score is None else Cell(score, f"{info.format(score)} ({columns})"))
    return [*rows, [Cell(label), Cell(BEST), *best]]


def _cell(group: Group, score: float | None) -> Cell:
    return Cell(None) if score is None else Cell(score, group.leading.format(score))
