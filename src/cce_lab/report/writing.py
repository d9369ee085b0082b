"""A report on disk: page, figures and tables, each written to a temporary file and renamed; and in a notebook."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.files import write_together
from cce_lab.report.overview import overview_table
from cce_lab.report.page import make_page
from cce_lab.report.reading import collect
from cce_lab.report.sections import make_sections
from cce_lab.report.tables import environment_table
from cce_lab.report.vega import HINT, can_draw, picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cce_lab.report.reading import Collected
    from cce_lab.report.sections import Section
    from cce_lab.report.vega import Plot

    Write = Callable[[Path, str | bytes], None]


PAGE = "index.html"


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
        return self.folder / PAGE

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


def make_report(*runs: Path | str, out: Path | str | None = None, figures: bool = True) -> Report:
    """Write the report of runs, as `cce report` does, and return it: its tables as rows, its figures to be shown.

    runs: files of records (.jsonl), or folders of sweeps and runs.
    out: the folder of the report (default: report, inside the first of `runs`, or beside it if that is a file).
    figures: write files of all figures as well.
    """
    if not runs:
        raise ValueError("runs must name at least one folder or file of records, got none.")
    paths = [Path(run) for run in runs]
    folder = default_folder(paths[0]) if out is None else Path(out)
    return write_report(collect(paths), folder, figures=figures)


def default_folder(runs: Path) -> Path:
    """`report` inside a folder, or beside a file."""
    return (runs if runs.is_dir() else runs.parent) / "report"


def write_report(found: Collected, out: Path, *, figures: bool = True, reload_seconds: float | None = None) -> Report:
    """Write everything to `out`; without vl-convert no figures and no page."""
    sections = make_sections(found)
    with write_together() as write:
        paths = _write_tables(found, sections, out / "tables", write)
        pictures = _write_figures(sections, out / "figures", write) if figures and can_draw() else []
        if can_draw():
            write(out / PAGE, make_page(found, sections, reload_seconds=reload_seconds))
            paths.insert(0, out / PAGE)
    return Report(out, tuple(sections), (*paths, *pictures), found)


def _write_tables(found: Collected, sections: list[Section], folder: Path, write: Write) -> list[Path]:
    paths = []
    tables = [table for section in sections for table in section.tables if table.rows]
    overview = overview_table([section.group for section in sections])
    for table in [*tables, *([overview] if overview.rows else []), environment_table(found.records)]:
        for kind, text in (("csv", table.as_csv()), ("md", table.as_markdown())):
            write(folder / f"{table.name}.{kind}", text)
            paths.append(folder / f"{table.name}.{kind}")
    return paths


def _write_figures(sections: list[Section], folder: Path, write: Write) -> list[Path]:
    paths = []
    for section in sections:
        for plot in section.plots:
            for kind in ("svg", "png"):
                title = f"{plot.title}: {section.group.title}"
                path = folder / f"{section.group.slug}-{plot.name}.{kind}"
                write(path, picture(plot.spec, title=title, kind=kind))
                paths.append(path)
    return paths


PATIENCE = 120.0  # seconds; between two runs of a sweep there are a few


def watch(
    paths: Sequence[Path],
    out: Path | None = None,
    *,
    seconds: float,
    figures: bool = True,
    report: Callable[[Collected], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Write the page every `seconds`; at the end, or at Ctrl-C, write the whole report.

    It ends when nothing more can come, or when no run is under way and nothing has changed for `PATIENCE` seconds.
    """
    out = default_folder(paths[0]) if out is None else out
    try:
        found, last, quiet = collect(paths, may_be_empty=True), "", 0.0
        while not (found.num_runs and (found.is_finished or quiet > PATIENCE)):
            now = _state(found)
            quiet = quiet + seconds if now == last and not found.num_running else 0.0
            if now != last and found.num_runs:
                write_report(found, out, figures=False, reload_seconds=seconds)
                if report is not None:
                    report(found)
            last = now
            sleep(seconds)
            found = collect(paths, may_be_empty=True)
    except KeyboardInterrupt:
        found = collect(paths)
    return write_report(found, out, figures=figures)


def _state(found: Collected) -> str:
    """What a page depends on: nothing is written while it stays the same."""
    return repr((len(found.records), [(run.name, len(run.lines), run.is_running) for run in found.live]))
