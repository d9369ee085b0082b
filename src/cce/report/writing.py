"""A report on disk: the page, the figures and the tables, each written aside and renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.files import write_atomic
from cce.report.environment_table import environment_table
from cce.report.page import make_page
from cce.report.sections import make_sections
from cce.report.vega import can_draw, picture

if TYPE_CHECKING:
    from pathlib import Path

    from cce.report.reading import Collected
    from cce.report.sections import Section

KINDS = ("svg", "png")


def write_report(
    found: Collected, out: Path, *, figures: bool = True, reload_seconds: float | None = None
) -> tuple[list[Section], list[Path]]:
    """Write everything to `out`; without vl-convert the tables only. Gives the sections and the paths."""
    sections = make_sections(found)
    paths = _write_tables(found, sections, out / "tables")
    if can_draw():
        if figures:
            paths += _write_figures(sections, out / "figures")
        page = out / "index.html"
        write_atomic(page, make_page(found, sections, reload_seconds=reload_seconds))
        paths.insert(0, page)
    return sections, paths


def _write_tables(found: Collected, sections: list[Section], folder: Path) -> list[Path]:
    paths = []
    tables = [table for section in sections for table in section.tables if table.rows]
    for table in [*tables, environment_table(found.records)]:
        for kind, text in (("csv", table.as_csv()), ("md", table.as_markdown())):
            write_atomic(folder / f"{table.name}.{kind}", text)
            paths.append(folder / f"{table.name}.{kind}")
    return paths


def _write_figures(sections: list[Section], folder: Path) -> list[Path]:
    paths = []
    for section in sections:
        for plot in section.plots:
            for kind in KINDS:
                title = f"{plot.title}: {section.group.title}"
                path = folder / f"{section.group.slug}-{plot.name}.{kind}"
                write_atomic(path, picture(plot.spec, title=title, kind=kind))
                paths.append(path)
    return paths
