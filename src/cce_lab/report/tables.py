"""The tables of a report: the summary, compression factors, options that differ, environments; memory of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cce.evaluation import Better, describe_metric
from cce.footprint import Footprint, Footprints
from cce.text import format_bytes
from cce_lab.report.factors import Factor, Spread, format_range, is_number, spread
from cce_lab.report.groups import WORDS, Budget, Group, group_records, with_sources
from cce_lab.report.table import Cell, Column, Table, number_cell, ratio_cell

if TYPE_CHECKING:
    from cce.records import RunRecord

SIZES = {  # measure → its column and that of the ratio to the full tables
    "training": ("training bytes", "of tables, pointers, gradients, optimizer and clustering, at most", "in training"),
    "bytes": ("served bytes", "of all tables, pointers included", "served"),
    "params": ("params", "trainable parameters of all tables", "params"),
}
COSTS = (
    Column("rows/s", about="trained a second, without validation, clustering and saving"),
    Column("seconds", about="all parts together, mean over seeds"),
    Column("measured peak", about="memory of the process above that without tables, at most, mean over seeds"),
    Column("seeds"),
)
EXPECTED = {"params": "compression", "largest": "largest"}  # measure → the recipe's word
PARTS = {  # of the memory of a table: heading → part of its footprint
    "codebook": "codebook",
    "pointers": "pointer",
    "gradients": "gradient",
    "optimizer": "optimizer",
    "int8 rows": "codes",
    "clustering": "clustering",
}


def summary_table(group: Group) -> Table:
    """A line for each series and budget: its scores, the leading one first, its size and its cost."""
    columns = [Column("series", is_text=True), Column("budget", is_text=True)]
    for info in group.metrics:
        about = "on the test rows: mean over seeds, least to greatest"
        about += "" if info.better is Better.UNKNOWN else f"; {info.better} is better"
        columns.append(Column(info.title, about=about))
        if info.name == group.leading.name:
            columns.append(Column("against full", about=f"{info.title} less that of the full table of the same seed"))
    for name, about, ratio in SIZES.values():
        columns += [Column(name, about=about), Column(f"fewer {ratio}", about="times fewer than the full tables have")]
    rows = [
        [Cell(each.series), Cell(each.label), *_scores(group, each), *_sizes(group, each), *_costs(each)]
        for each in group.budgets
    ]
    return Table(f"{group.slug}-summary", "Summary", [*columns, *COSTS], rows)


def sweep_table(records: Sequence[RunRecord]) -> str:
    """What came of a sweep, as text: a few columns of the summary of each group."""
    parts = []
    for group in group_records(with_sources(records)):
        names = ("series", "budget", "params", "fewer params", "served bytes", group.leading.title)
        parts += [group.title, summary_table(group).only((*names, "against full", "seconds", "seeds")).as_text()]
    return "\n".join(parts)


def _sizes(group: Group, budget: Budget) -> list[Cell]:
    cells = []
    for measure in SIZES:
        size = budget.size(measure)
        text = "" if size is None else f"{size:,.0f}" if measure == "params" else format_bytes(round(size))
        cells += [Cell(size and round(size), text), ratio_cell(group.full_size(measure), size)]
    return cells


def _scores(group: Group, budget: Budget) -> list[Cell]:
    cells = []
    for info in group.metrics:
        found = budget.over_seeds(info.name)
        cells.append(Cell(found and found.mean, spread_text(found)))
        if info.name == group.leading.name:
            cells.append(_difference(group, budget))
    return cells


def spread_text(found: Spread | None) -> str:
    """`0.4512 [0.4508–0.4519]`; one seed has no range."""
    if found is None:
        return ""
    return f"{found.mean:.4f}" + (f" [{found.least:.4f}–{found.greatest:.4f}]" if found.count > 1 else "")


def _difference(group: Group, budget: Budget) -> Cell:
    """The mean difference to the full table, and in how many seeds it is the better one."""
    found = group.against_full(budget)
    if not found:
        return Cell(None)
    num_better = sum(group.leading.loss(difference) < 0 for difference in found)
    text = f"{fmean(found):+.4f}".replace("-", "−")
    return Cell(fmean(found), text, f"better than the full table in {num_better} of {len(found)} seeds")


def _costs(budget: Budget) -> list[Cell]:
    peak = spread(max(record.peak_nbytes.values()) for record in budget.records if record.peak_nbytes)
    speed, seconds = (
        spread(getattr(record, name) for record in budget.records) for name in ("samples_per_second", "seconds")
    )
    return [
        number_cell(speed and speed.mean, ",.0f"),
        number_cell(seconds and seconds.mean, ",.0f"),
        Cell(peak and round(peak.mean), format_bytes(round(peak.mean)) if peak else ""),
        Cell(len(budget.records), "", f"seeds {', '.join(str(record.seed) for record in budget.records)}"),
    ]


def factor_table(group: Group, expected: dict[str, Any]) -> Table:
    """A line for each series but the full table, what was reached first, the greatest factor before others."""
    names = [name for name in group.series if name != group.full_series]
    factors = {name: {measure: group.factor(name, measure) for measure in WORDS} for name in names}
    lead = {name: factors[name][group.lead] for name in names}
    names.sort(key=lambda name: (not lead[name].is_reached, -(lead[name].value or 0), name))
    about = f"times fewer than the full table, where its {group.leading.title} is reached"
    columns, rows = [Column("series", is_text=True)], [[Cell(name)] for name in names]

    def add(column: Column, cells: Iterable[Cell]) -> None:
        columns.append(column)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)

    for measure, word in WORDS.items():
        mine = [factors[name][measure] for name in names]
        add(Column(f"fewer {word}", about=about), [Cell(each.value, str(each), "; ".join(each.notes)) for each in mine])
    for key, found in expected.items():
        if isinstance(found, dict):
            is_ratio = key in EXPECTED.values()
            what = {"compression": "params", "largest": WORDS["largest"]}.get(key) or describe_metric(key).title
            column = Column(f"expected {what}", about=f"by {expected.get('source', 'the recipe')}")
            add(column, [_expected_cell(found.get(name), is_ratio=is_ratio) for name in names])
    add(Column("how", is_text=True), [Cell(how(lead[name])) for name in names])
    return Table(f"{group.slug}-factors", "Compression factors", columns, rows)


def how(factor: Factor) -> str:
    """How a factor is known, in words."""
    words = str(factor.kind)
    if factor.is_reached and factor.num_seeds > 1:
        words += f", {factor.num_reached} of {factor.num_seeds} seeds reach it"
    return "; ".join([words, *factor.notes])


def _expected_cell(value: Any, *, is_ratio: bool) -> Cell:
    """A number, or the middle of a range of two; nothing where the recipe has something else, or nothing."""
    ends = value if isinstance(value, list) else [value]
    if len(ends) not in (1, 2) or not all(map(is_number, ends)):
        return Cell(None)
    low, high = ends[0], ends[-1]
    text = f"{low:.4f}" if low == high else f"{low:.4f}–{high:.4f}"
    return Cell(math.sqrt(low * high), format_range(low, high) if is_ratio else text)


def memory_table(tables: Sequence[Footprint]) -> Table:
    """The memory of the tables of one run: a line for each, the largest first, and one for all of them."""
    columns = [Column("table", is_text=True), Column("method", is_text=True)]
    columns += map(Column, ("ids", "params", *PARTS, "fewer bytes", "fewer params"))
    ordered = sorted(tables, key=lambda table: -table.full_params)
    rows = []
    for table in (*ordered, *([Footprints(tuple(tables)).total] if tables else [])):
        sizes = [getattr(table, f"{part}_nbytes") for part in PARTS.values()]
        rows.append(
            [
                *(Cell(table.name), Cell(table.method)),
                *(Cell(count, f"{count:,}") for count in (table.num_embeddings, table.num_params)),
                *(Cell(size, format_bytes(size)) for size in sizes),
                ratio_cell(table.full_nbytes, table.nbytes),
                ratio_cell(table.full_params, table.num_params),
            ]
        )
    return Table("memory", "Tables", columns, rows)


def environment_table(records: Iterable[RunRecord]) -> Table:
    """A line for each environment that runs ran in, with the number of runs."""
    found = Counter(
        tuple((str(name), "" if value is None else str(value)) for name, value in record.environment.items())
        for record in records
    )
    names = list(dict.fromkeys(name for machine in found for name, _ in machine))
    columns = [Column("runs"), *(Column(name, is_text=True) for name in names)]
    rows = [[Cell(count), *(Cell(dict(machine).get(name, "")) for name in names)] for machine, count in found.items()]
    return Table("environment", "Environment", columns, rows)
