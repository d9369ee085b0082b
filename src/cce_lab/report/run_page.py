"""`write_run_page`: one HTML file about one run, its best model and how it came about."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from cce.evaluation import format_scores
from cce.files import check_target, write_atomic
from cce.footprint import Footprints
from cce.text import format_bytes, format_ratio
from cce_lab.report.page import train_command
from cce_lab.report.run_parts import footprints, make_parts
from cce_lab.report.tables import environment_table
from cce_lab.report.template import fill_page, html_list, plot_data
from cce_lab.report.vega import HINT, can_draw

if TYPE_CHECKING:
    from cce.runs import LoadedRun, RunHistory
    from cce_lab.report.run_parts import Part


def write_run_page(run: LoadedRun, out: Path | str, *, data: Path | str | None = None) -> list[str]:
    """Write the page of a run that `cce.load_run` loaded, whole or not at all; return what it leaves out, and why.

    data: the data set of the run, for its calibration, if it is not where it was.
    """
    from cce.runs import read_history

    if not can_draw():
        raise ModuleNotFoundError(f"a page cannot be drawn: {HINT}")
    check_target("page", Path(out))
    history = read_history(run)
    parts = make_parts(run, history, data)
    write_atomic(Path(out), _page(run, history, parts))
    return [f"{each.title}: {line}" for each in parts for line in each.left_out]


def _page(run: LoadedRun, history: RunHistory, parts: list[Part]) -> str:
    title = f"cce run: {run_name(run)}"
    links = " ".join(f'<a href="#{each.name}">{escape(each.title)}</a>' for each in parts)
    values = {
        "title": escape(title),
        "progress": escape(f"{run.path}, step {run.step:,}{'' if history.record else ', not finished'}"),
        "is_live": "",
        "navigation": f"<nav>{links}</nav>",
        "overview": "",
        "sections": f'<p class="headline">{escape(headline(run, history))}</p>'
        + "\n".join(each.as_html() for each in parts),
        "notes": html_list(run.damage),
        "environment": environment_table([history.record]).as_html() if history.record else "<p>Not recorded yet.</p>",
        "commands": f"<pre>{escape(train_command(vars(run.config)))}</pre>",
    }
    return fill_page(values, {"reload": None, "sections": [plot_data(each.name, each.plots) for each in parts]})


def run_name(run: LoadedRun) -> str:
    """The name of the folder of a run, or of its pack without the ending."""
    from cce.runs import run_folder

    return run.path.stem if run.path.is_file() else run_folder(run.path).path.resolve().name


def headline(run: LoadedRun, history: RunHistory) -> str:
    """The test scores, and what the tables take."""
    total = Footprints(tuple(footprints(run, history))).total
    scores = f"Test: {format_scores(run.scores)}" if run.scores else "No test scores"
    sizes = [f"{total.num_params:,} params", format_bytes(total.nbytes)]
    if total.nbytes:
        sizes.append(f"{format_ratio(total.full_nbytes / total.nbytes)} fewer bytes than full tables")
    return f"{scores}. Tables: {', '.join(sizes)}."
