"""A report in a notebook: tables as rows, and figures that show themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cce_lab.report.vega import HINT, can_draw, picture

if TYPE_CHECKING:
    from pathlib import Path

    from cce_lab.report.reading import Collected
    from cce_lab.report.sections import Section
    from cce_lab.report.vega import Plot


@dataclass(frozen=True)
class InlineFigure:
    """One chart; a notebook shows it as SVG."""

    name: str
    title: str
    plot: Plot

    def picture(self, kind: str = "svg") -> bytes:
        """The chart as `svg`, `png` or `pdf`."""
        if not can_draw():
            raise ModuleNotFoundError(f"a figure cannot be drawn: {HINT}")
        return picture(self.plot.spec, title=self.title, kind=kind)

    def _repr_svg_(self) -> str:
        return self.picture("svg").decode()


@dataclass(frozen=True)
class Report:
    """A report that was written: its folder, its files, and a section for each set of runs that may be compared."""

    folder: Path
    sections: tuple[Section, ...]
    files: tuple[Path, ...]  # the page or document first
    found: Collected  # what was read

    @property
    def page(self) -> Path:
        """The HTML page, which is written where figures can be drawn."""
        return self.folder / "index.html"

    def figure_names(self, section: int = 0) -> list[str]:
        """Names of the figures of a section."""
        return [plot.name for plot in self._section(section).plots]

    def figure(self, name: str, section: int = 0) -> InlineFigure:
        """A figure by name, such as `bce-bytes`."""
        here = self._section(section)
        plot = next((plot for plot in here.plots if plot.name == name), None)
        if plot is None:
            raise ValueError(f"figure must be one of {', '.join(self.figure_names(section))}; got {name!r}.")
        return InlineFigure(name, f"{plot.title}: {here.group.title}", plot)

    def rows(self, table: str = "summary", section: int = 0) -> list[dict[str, Any]]:
        """A table as a list of dictionaries: `summary`, `factors` or `ledger`."""
        here = self._section(section)
        tables = {"summary": here.summary, "factors": here.factors, "ledger": here.ledger}
        if table not in tables:
            raise ValueError(f"table must be one of {', '.join(tables)}; got {table!r}.")
        return tables[table].as_dicts()

    def _section(self, index: int) -> Section:
        if not 0 <= index < len(self.sections):
            raise IndexError(f"section must lie in [0, {len(self.sections)}), got {index}.")
        return self.sections[index]

    def _repr_html_(self) -> str:
        """Headlines and the summary of each section."""
        from html import escape

        parts = [f"<p><b>{escape(s.group.title)}</b>. {escape(s.headline)}</p>" for s in self.sections]
        return "".join(parts) + f"<p>{escape(str(self.page))}</p>"
