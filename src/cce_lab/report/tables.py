"""Tables as data, written as text, CSV, LaTeX and HTML; and those of a report and of the page of a run."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean
from typing import Any

from cce.evaluation import Better, describe_metric
from cce.footprint import Footprint, Footprints
from cce.records import RunRecord
from cce.text import format_bytes, format_ratio, format_table
from cce_lab.report.factors import Factor, format_range, is_number, spread
from cce_lab.report.groups import WORDS, Budget, Group, group_records, with_sources

LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"${character}$" for character in "<>|"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    | {"×": r"$\times$", "±": r"$\pm$", "−": "$-$", "≥": r"$\geq$", "≤": r"$\leq$", "–": "--"}
    | {"[": "{[}", "*": "{*}"}  # at the start of a row they would be options of the line break before
)


@dataclass(frozen=True)
class Column:
    """A heading, and what it means."""

    name: str
    is_text: bool = False
    about: str = ""


@dataclass(frozen=True)
class Cell:
    """A value to sort by and to keep, and how it is written; empty: as it is."""

    value: Any
    text: str = ""
    about: str = ""

    def __str__(self) -> str:
        return self.text or ("–" if _plain(self.value) is None else str(self.value))


@dataclass(frozen=True)
class Table:
    """Rows under columns."""

    name: str  # of its files
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def as_csv(self) -> str:
        """Every column, with values as they are."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows([_plain(cell.value) for cell in row] for row in self.rows)
        return file.getvalue()

    def as_dicts(self) -> list[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return [dict(zip(names, (_plain(cell.value) for cell in row), strict=True)) for row in self.rows]

    def only(self, names: Sequence[str]) -> Table:
        """The same with these columns alone; a name that it lacks is passed over."""
        indices = [index for index, column in enumerate(self.columns) if column.name in names]
        rows = [[row[index] for index in indices] for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in indices], rows=rows)

    def as_text(self) -> str:
        headers, rows = self._texts()
        num_left = next((i for i, column in enumerate(self.columns) if not column.is_text), len(self.columns))
        return format_table(headers, rows, num_left=num_left)

    def as_latex(self) -> str:
        """The same as a tabular, with the rules of the package booktabs."""
        headers, rows = self._texts()
        head, *body = [" & ".join(text.translate(LATEX) for text in row) + r" \\" for row in (headers, *rows)]
        kinds = "".join("l" if column.is_text else "r" for column in self.columns)
        lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *body]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def as_html(self) -> str:
        """The same, to be sorted by the page's script; everything is escaped."""
        head = "".join(_heading(column) for column in self.columns)
        body = "\n".join(
            f"<tr>{''.join(_data(cell, column) for cell, column in zip(row, self.columns, strict=True))}</tr>"
            for row in self.rows
        )
        return (
            f'<div class="wide" tabindex="0"><table class="sortable" data-name="{escape(self.name)}">'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    def explained(self) -> str:
        """The same under its title, and below it what the columns mean: on a phone nobody can point at a heading."""
        words = "; ".join(f"<b>{escape(each.name)}</b>: {escape(each.about)}" for each in self.columns if each.about)
        return f'<h3>{escape(self.title)}</h3>\n{self.as_html()}<p class="quiet">{words}.</p>'

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        return [column.name for column in self.columns], [[str(cell) for cell in row] for row in self.rows]


def ratio_cell(full: float | None, size: float | None) -> Cell:
    """How many times fewer; nothing where a size is not known."""
    return Cell(full / size, format_ratio(full / size)) if full and size else Cell(None)


def number_cell(value: Any, form: str) -> Cell:
    """A number in this format; nothing where it is none."""
    return Cell(value, format(value, form)) if is_number(value) else Cell(None)


def _heading(column: Column) -> str:
    kind = ' class="text"' if column.is_text else ""
    about = f' title="{escape(column.about)}"' if column.about else ""
    return f'<th scope="col" aria-sort="none"{kind}{about}><button type="button">{escape(column.name)}</button></th>'


def _data(cell: Cell, column: Column) -> str:
    kind = ' class="text"' if column.is_text else ""
    about = f' title="{escape(cell.about)}"' if cell.about else ""
    value = _plain(cell.value)
    key = "" if value is None or value == cell.text else f' data-value="{escape(str(value))}"'
    return f"<td{kind}{key}{about}>{escape(str(cell))}</td>"


def _plain(value: Any) -> Any:
    """What is not a number is nothing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- the tables of a report --------------------------------------------------------------------------------------------

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
        text = f"{found.mean:.4f}" if found else ""
        text += f" [{found.least:.4f}–{found.greatest:.4f}]" if found and found.count > 1 else ""
        cells.append(Cell(found and found.mean, text))
        if info.name == group.leading.name:
            cells.append(_difference(group, budget))
    return cells


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
