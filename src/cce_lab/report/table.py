"""A table as data: what it shows, what it sorts by, and the same as CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from cce.text import format_markdown, format_ratio, format_table

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        if self.text or self.value is None or (isinstance(self.value, float) and not math.isfinite(self.value)):
            return self.text or "–"
        return str(self.value)


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

    def as_text(self) -> str:
        """The same for a terminal."""
        indices = self._shown()
        headers = [self.columns[index].name for index in indices]
        rows = [[str(row[index]) for index in indices] for row in self.rows]
        return format_table(headers, rows, num_left=self._num_left())

    def only(self, names: Sequence[str]) -> Table:
        """The same with these columns alone; a name that it lacks is passed over."""
        indices = [index for index, column in enumerate(self.columns) if column.name in names]
        rows = [[row[index] for index in indices] for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in indices], rows=rows)

    def as_markdown(self) -> str:
        """The columns that are shown."""
        indices = self._shown()
        headers = [_bar_free(self.columns[index].name) for index in indices]
        rows = [[_bar_free(str(row[index])) for index in indices] for row in self.rows]
        return format_markdown(headers, rows, num_left=self._num_left()) + "\n"

    def as_html(self) -> str:
        """The same, to be sorted by the page's script; everything is escaped."""
        indices = self._shown()
        head = "".join(_heading(self.columns[index]) for index in indices)
        body = "\n".join(
            f"<tr>{''.join(_data(row[index], self.columns[index]) for index in indices)}</tr>" for row in self.rows
        )
        return (
            f'<div class="wide" tabindex="0"><table class="sortable" data-name="{escape(self.name)}">'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain data, as for JSON."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, (_plain(cell.value) for cell in row), strict=True)) for row in self.rows]

    def _shown(self) -> list[int]:
        return [index for index, column in enumerate(self.columns) if column.shown]

    def _num_left(self) -> int:
        """Columns of text before the first of numbers."""
        shown = [self.columns[index] for index in self._shown()]
        return next((index for index, column in enumerate(shown) if not column.is_text), len(shown))


def ratio_cell(full: float | None, size: float | None) -> Cell:
    """How many times fewer; nothing where a size is not known."""
    return Cell(full / size, format_ratio(full / size)) if full and size else Cell(None)


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


def _bar_free(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
