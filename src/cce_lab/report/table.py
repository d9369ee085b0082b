"""A table as data: what it shows, what it sorts by, and the same as CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from cce.text import format_markdown, format_ratio, format_table
from cce_lab.report.factors import is_number

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
        """Plain data, as for JSON."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, (_plain(cell.value) for cell in row), strict=True)) for row in self.rows]

    def only(self, names: Sequence[str]) -> Table:
        """The same with these columns alone; a name that it lacks is passed over."""
        indices = [index for index, column in enumerate(self.columns) if column.name in names]
        rows = [[row[index] for index in indices] for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in indices], rows=rows)

    def as_text(self) -> str:
        """For a terminal."""
        headers, rows = self._texts()
        return format_table(headers, rows, num_left=self._num_left())

    def as_markdown(self) -> str:
        """The same as Markdown."""
        headers, rows = self._texts()
        lines = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in (headers, *rows)]
        return format_markdown(lines[0], lines[1:], num_left=self._num_left()) + "\n"

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

    def _num_left(self) -> int:
        """Columns of text before the first of numbers."""
        numeric = (index for index, column in enumerate(self.columns) if not column.is_text)
        return next(numeric, len(self.columns))


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
