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
    """A heading. What is not `shown` is in the CSV file only."""

    name: str
    is_text: bool = False
    shown: bool = True
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
        """The columns that are shown, for a terminal."""
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
        kinds = "".join("l" if column.is_text else "r" for column in self._shown().columns)
        lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *body]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def as_html(self) -> str:
        """The same, to be sorted by the page's script; everything is escaped."""
        shown = self._shown()
        head = "".join(_heading(column) for column in shown.columns)
        body = "\n".join(
            f"<tr>{''.join(_data(cell, column) for cell, column in zip(row, shown.columns, strict=True))}</tr>"
            for row in shown.rows
        )
        return (
            f'<div class="wide" tabindex="0"><table class="sortable" data-name="{escape(self.name)}">'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    def _shown(self) -> Table:
        return self.only([column.name for column in self.columns if column.shown])

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        shown = self._shown()
        return [column.name for column in shown.columns], [[str(cell) for cell in row] for row in shown.rows]

    def _num_left(self) -> int:
        """Columns of text before the first of numbers."""
        shown = self._shown().columns
        return next((index for index, column in enumerate(shown) if not column.is_text), len(shown))


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
