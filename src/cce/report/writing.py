"""A report on disk: the page, the figures and the tables, which are all written or none is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cce.checks import check_choice
from cce.files import write_together
from cce.report.overview import overview_table
from cce.report.page import make_page
from cce.report.paper import FORMATS, as_latex, as_markdown, scores_table
from cce.report.reading import collect
from cce.report.sections import make_sections
from cce.report.tables import environment_table
from cce.report.vega import can_draw, picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cce.report.reading import Collected
    from cce.report.sections import Section

    Write = Callable[[Path, str | bytes], None]


def write_report(
    found: Collected, out: Path, *, form: str = "html", figures: bool = True, reload_seconds: float | None = None
) -> tuple[list[Section], list[Path]]:
    """Write everything to `out`; without vl-convert no figures and no page. Gives the sections and the paths.

    form: one of `FORMATS`: a page, or a document for a paper. The page or document is the first of the paths.
    """
    check_choice("format", form, FORMATS)
    sections, kinds = make_sections(found), FORMATS[form]
    with write_together() as write:
        paths = _write_tables(found, sections, out / "tables", kinds.tables, write)
        pictures = _write_figures(sections, out / "figures", kinds.figures, write) if figures and can_draw() else []
        if form != "html" or can_draw():
            page = out / kinds.document
            write(page, _document(form, found, sections, pictures, out, reload_seconds))
            paths.insert(0, page)
    return sections, [*paths, *pictures]


def _document(
    form: str,
    found: Collected,
    sections: list[Section],
    pictures: list[Path],
    out: Path,
    reload_seconds: float | None,
) -> str:
    if form == "html":
        return make_page(found, sections, reload_seconds=reload_seconds)
    names = [path.relative_to(out).as_posix() for path in pictures if path.suffix != ".png"]
    return as_latex(sections, names) if form == "latex" else as_markdown(sections, names)


def _write_tables(
    found: Collected, sections: list[Section], folder: Path, kinds: Sequence[str], write: Write
) -> list[Path]:
    paths = []
    tables = [table for section in sections for table in (scores_table(section.group), *section.tables) if table.rows]
    overview = overview_table([section.group for section in sections])
    for table in [*tables, *([overview] if overview.rows else []), environment_table(found.records)]:
        texts = {"csv": table.as_csv, "md": table.as_markdown, "tex": table.as_latex}
        for kind in kinds:
            write(folder / f"{table.name}.{kind}", texts[kind]())
            paths.append(folder / f"{table.name}.{kind}")
    return paths


def _write_figures(sections: list[Section], folder: Path, kinds: Sequence[str], write: Write) -> list[Path]:
    paths = []
    for section in sections:
        for plot in section.plots:
            for kind in kinds:
                title = f"{plot.title}: {section.group.title}"
                path = folder / f"{section.group.slug}-{plot.name}.{kind}"
                write(path, picture(plot.spec, title=title, kind=kind))
                paths.append(path)
    return paths


PATIENCE = 120.0  # seconds; between two runs of a sweep there are a few
Told = tuple["Collected", list["Section"], list["Path"]]


def watch(
    paths: Sequence[Path],
    out: Path,
    *,
    seconds: float,
    figures: bool = True,
    report: Callable[[Collected], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Told:
    """Write the page every `seconds`; at the end, or at Ctrl-C, write the whole report.

    It ends when nothing more can come, or when no run is under way and nothing has changed for `PATIENCE` seconds.
    """
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
    sections, written = write_report(found, out, figures=figures)
    return found, sections, written


def _state(found: Collected) -> str:
    """What a page depends on: nothing is written while it stays the same."""
    return repr((len(found.records), [(run.name, len(run.lines), run.is_running) for run in found.live]))
