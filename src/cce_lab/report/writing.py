"""A report on disk: page, figures and tables, each written to a temporary file and renamed; and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from cce.checks import check_choice
from cce.files import write_together
from cce_lab.report.page import make_page
from cce_lab.report.reading import Collected, collect
from cce_lab.report.sections import Section, make_sections
from cce_lab.report.tables import environment_table
from cce_lab.report.vega import Plot, can_draw

PAGE = "index.html"
FORMATS = {  # endings of the files of tables and of figures
    "html": (("csv", "md"), ("svg", "png")),
    "latex": (("csv", "tex"), ("pdf",)),
}


@dataclass(frozen=True)
class Report:
    """A report that was written: its folder, its files, and a section for each set of runs that may be compared."""

    folder: Path
    sections: tuple[Section, ...]
    files: tuple[Path, ...]  # the page first
    found: Collected  # what was read

    @property
    def page(self) -> Path:
        """The HTML page, which is written where figures can be drawn."""
        return self.folder / PAGE

    def figure_names(self, section: int = 0) -> list[str]:
        """Names of the figures of a section."""
        return [plot.name for plot in self._section(section).plots]

    def figure(self, name: str, section: int = 0) -> Plot:
        """A figure by name, such as `bce-bytes`; a notebook shows it as SVG."""
        here = self._section(section)
        check_choice("figure", name, self.figure_names(section))
        plot = next(plot for plot in here.plots if plot.name == name)
        return replace(plot, title=f"{plot.title}: {here.group.title}")

    def rows(self, table: str = "summary", section: int = 0) -> list[dict[str, Any]]:
        """A table as a list of dictionaries: `summary`, `factors` or `settings`."""
        tables = self._section(section).tables
        check_choice("table", table, tables)
        return tables[table].as_dicts()

    def _section(self, index: int) -> Section:
        if not 0 <= index < len(self.sections):
            raise IndexError(f"section must lie in [0, {len(self.sections)}), got {index}.")
        return self.sections[index]

    def _repr_html_(self) -> str:
        """The headline of each section."""
        parts = [f"<p><b>{escape(s.group.title)}</b>. {escape(s.headline)}</p>" for s in self.sections]
        return "".join(parts) + f"<p>{escape(str(self.page))}</p>"


def make_report(
    *runs: Path | str,
    out: Path | str | None = None,
    format: str = "html",  # noqa: A002 - the shell's name
    figures: bool = True,
) -> Report:
    """Write the report of runs, as `cce report` does, and return it: its tables as rows, its figures to be shown.

    runs: files of records (.jsonl), or folders of sweeps and runs.
    out: the folder of the report (default: report, inside the first of `runs`, or beside it if that is a file).
    format: `html`, or `latex`: tables for the package booktabs, and figures as PDF.
    figures: write files of all figures as well.
    """
    if not runs:
        raise ValueError("runs must name at least one folder or file of records, got none.")
    paths = [Path(run) for run in runs]
    if out is None:
        out = (paths[0] if paths[0].is_dir() else paths[0].parent) / "report"
    return write_report(collect(paths), Path(out), format=format, figures=figures)


def write_report(
    found: Collected,
    out: Path,
    *,
    format: str = "html",  # noqa: A002
    figures: bool = True,
) -> Report:
    """Write everything to `out`; without vl-convert no figures and no page."""
    check_choice("format", format, FORMATS)
    sections, paths = make_sections(found), []
    table_kinds, figure_kinds = FORMATS[format]
    with write_together() as write:
        if format == "html" and can_draw():
            paths.append(out / PAGE)
            write(out / PAGE, make_page(found, sections))
        tables = [table for section in sections for table in section.tables.values() if table.rows]
        for table in [*tables, environment_table(found.records)]:
            texts = {"csv": table.as_csv, "md": table.as_markdown, "tex": table.as_latex}
            for kind in table_kinds:
                paths.append(out / "tables" / f"{table.name}.{kind}")
                write(paths[-1], texts[kind]())
        for section in sections if figures and can_draw() else ():
            for plot in section.plots:
                drawn = replace(plot, title=f"{plot.title}: {section.group.title}")
                for kind in figure_kinds:
                    paths.append(out / "figures" / f"{section.group.slug}-{plot.name}.{kind}")
                    write(paths[-1], drawn.picture(kind))
    return Report(out, tuple(sections), tuple(paths), found)
