"""The page of one run, its best model and how it came about; a part that cannot be made says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.evaluation import format_scores
from cce.files import check_target, write_atomic
from cce.footprint import Footprint, Footprints
from cce.text import format_bytes, format_ratio
from cce.training import read_toml
from cce_lab.report.page import figure_box, fill_page, given_options, legend, section_box
from cce_lab.report.plots import PHASES, run_plots
from cce_lab.report.tables import Cell, Column, Table, environment_table, memory_table, number_cell
from cce_lab.report.vega import HINT, Plot, can_draw

if TYPE_CHECKING:
    from cce.runs import LoadedRun, RunHistory

REASONS = (OSError, TypeError, ValueError)  # why a part cannot be made; anything else is a fault of ours
NUM_VALUES, NUM_NEIGHBOURS, NUM_CANDIDATES = 12, 5, 4096  # of a feature: shown, beside each, and compared with
LONGEST = 80  # characters of a raw value
MEANINGS = {
    "H1": "entropy of the pointers of a column, in nats, the least of all columns; low where ids share few rows",
    "H2": "the same of pairs of columns; not far above H1 where columns have become alike",
    "dead rows": "rows of the codebook that no id points to",
    "churn": "share of pointers that changed",
}
EVENT = {  # heading → field of the log and its format
    "step": ("step", ","),
    "ids": ("num_ids", ","),
    "churn": ("churn", ".3f"),
    "dead rows": ("dead_rows", ","),
    "seconds": ("seconds", ".2f"),
    "H1": ("H1", ".3f"),
    "H2": ("H2", ".3f"),
}


@dataclass(frozen=True)
class Part:
    """A section of the page. left_out: what it lacks, and why, a line each."""

    name: str
    title: str
    html: str = ""
    plots: list[Plot] = field(default_factory=list)
    left_out: tuple[str, ...] = ()

    def as_html(self) -> str:
        """The section; its charts are boxes that the script fills."""
        boxes = "".join(figure_box(plot) for plot in self.plots)
        series = {row["series"] for plot in self.plots for row in plot.spec["data"]["values"]}
        kind = "plots single" if len(self.plots) == 1 else "plots"
        pieces = [
            legend({name: style for name, style in PHASES.items() if name in series}) if len(series) > 1 else "",
            f'<div class="{kind}">{boxes}</div>' if boxes else "",
            self.html,
            *(f'<p class="quiet">Left out: {escape(line)}</p>' for line in self.left_out),
        ]
        return section_box(self.name, self.title, "".join(pieces))


def write_run_page(run: LoadedRun, out: Path | str) -> list[str]:
    """Write the page of a run that `cce.load_run` loaded, whole or not at all; return what it leaves out, and why."""
    from cce.runs import read_history, run_folder

    if not can_draw():
        raise ModuleNotFoundError(f"a page cannot be drawn: {HINT}")
    check_target("page", Path(out))
    history = read_history(run)
    parts = make_parts(run, history)
    is_packed = run.path.is_file()
    folder = None if is_packed else run_folder(run.path)
    config = history.record.config if history.record else read_toml(folder.config) if folder else {}
    damage = "".join(f"<li>{escape(line)}</li>" for line in run.damage)
    page = fill_page(
        title=f"cce run: {folder.path.resolve().name if folder else run.path.stem}",
        progress=f"{run.path}, step {run.step:,}{'' if history.record else ', not finished'}",
        links={each.name: each.title for each in parts},
        sections=f'<p class="headline">{escape(make_headline(run, history))}</p>'
        + "\n".join(each.as_html() for each in parts),
        notes=f"<ul>{damage}</ul>" if damage else "",
        environment=environment_table([history.record]).as_html() if history.record else "<p>Not recorded yet.</p>",
        commands=f"<pre>{escape(given_options(config))}</pre>" if config else "<p>Not recorded yet.</p>",
        charts={each.name: each.plots for each in parts},
    )
    write_atomic(Path(out), page)
    return [f"{each.title}: {line}" for each in parts for line in each.left_out]


def make_headline(run: LoadedRun, history: RunHistory) -> str:
    total = Footprints(tuple(footprints(run, history))).total
    scores = f"Test: {format_scores(run.scores)}" if run.scores else "No test scores"
    sizes = [f"{total.num_params:,} params", format_bytes(total.nbytes)]
    if total.nbytes:
        sizes.append(f"{format_ratio(total.full_nbytes / total.nbytes)} fewer bytes than full tables")
    return f"{scores}. Tables: {', '.join(sizes)}."


def footprints(run: LoadedRun, history: RunHistory) -> Sequence[Footprint]:
    """The tables as the record has them, with gradients and optimizer state; without a record, those of the model."""
    from cce.diagnostics import summary

    return history.record.tables if history.record and history.record.tables else summary(run.model).tables


def make_parts(run: LoadedRun, history: RunHistory) -> list[Part]:
    """All parts in their order; one that cannot be made says why."""
    makers: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
        ("scores", "Scores"): partial(_scores, run, history),
        ("tables", "Tables"): lambda: {"html": memory_table(footprints(run, history)).as_html()},
        ("clusterings", "Clusterings"): partial(_clusterings, history),
        ("neighbours", "Nearest values"): partial(_neighbours, run),
    }
    parts = []
    for (name, title), make in makers.items():
        try:
            parts.append(Part(name, title, **make()))
        except REASONS as error:
            parts.append(Part(name, title, left_out=(" ".join(str(error).split()),)))
    return parts


def _scores(run: LoadedRun, history: RunHistory) -> dict[str, Any]:
    """Curves; what has one point is a number."""
    left_out = () if history.curve else ("the curves: the run has no validations yet.",)
    plots = run_plots(history, run.options["metrics"][0])
    lines = []
    for plot in plots:
        points = [row for row in plot.spec["data"]["values"] if "score" in row]
        if len(points) == 1:
            lines.append(f"{plot.title} {points[0]['score']:.5f}, at step {points[0]['step']:,}")
    html = f"<p>One validation: {escape('; '.join(lines))}.</p>" if lines else ""
    return {"html": html, "plots": [plot for plot in plots if plot.num_points > 1], "left_out": left_out}


def _clusterings(history: RunHistory) -> dict[str, Any]:
    events = {"Clusterings": history.clusterings, "Refits": history.refits}
    tables = [_event_table(title, lines) for title, lines in events.items() if lines]
    left_out = () if tables else ("of this run no clustering and no refit is known.",)
    return {"html": "".join(table.explained() for table in tables), "left_out": left_out}


def _event_table(title: str, lines: Sequence[dict[str, Any]]) -> Table:
    """A line for each table that was clustered or refitted, with what the log has of it."""
    known = {name: form for name, form in EVENT.items() if any(line.get(form[0]) is not None for line in lines)}
    columns = [Column("table", is_text=True), *(Column(name, about=MEANINGS.get(name, "")) for name in known)]
    rows = [
        [Cell(str(line["table"])), *(number_cell(line.get(key), form) for key, form in known.values())]
        for line in lines
    ]
    return Table(title.lower(), title, columns, rows)


def _neighbours(run: LoadedRun) -> dict[str, Any]:
    from cce.runs import similar

    html, left_out = "", []
    for name in (feature.name for feature in run.schema.features):
        try:
            known = run.vocabularies[name].values(range(1, min(NUM_VALUES, len(run.vocabularies[name]) - 1) + 2))
            values = [value for value in known if value][:NUM_VALUES]  # without the missing one
            found = similar(run, name, values, NUM_NEIGHBOURS, among=NUM_CANDIDATES)
        except REASONS as error:
            left_out.append(f"{name}: {error}")
            continue
        width = max(map(len, found), default=0)
        nearest = [Column(f"nearest {rank}", is_text=True) for rank in range(1, width + 1)]
        rows = [
            [_value(value), *(_value(other, f" · {cosine:.2f}") for other, cosine in near)]
            for value, near in zip(values, found, strict=True)
        ]
        table = Table(f"{name}-neighbours", name, [Column("value", is_text=True), *nearest], rows)
        html += f"<h3>{escape(name)}</h3>\n{table.as_html()}"
    about = "The most frequent values of each feature, and those whose vectors have the greatest cosine with theirs."
    about = f'<p class="quiet">{about}</p>' if html else ""
    return {"html": about + html, "left_out": tuple(dict.fromkeys(left_out))}


def _value(value: str, after: str = "") -> Cell:
    shown = value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    return Cell(value, f"{shown}{after}", about=value if shown != value else "")
