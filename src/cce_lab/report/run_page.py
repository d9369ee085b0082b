"""The page of one run, its best model and how it came about; a part that cannot be made says why."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.evaluation import format_scores
from cce.files import check_target, write_atomic
from cce.footprint import Footprints
from cce.text import format_bytes, format_ratio
from cce_lab.report.factors import is_number
from cce_lab.report.page import train_command
from cce_lab.report.run_plots import calibration_plot, curve_plots, event_plots, greatest_entropy
from cce_lab.report.table import Cell, Column, Table
from cce_lab.report.tables import LEDGER_NUMBERS, environment_table, ledger_rows
from cce_lab.report.template import figure_box, fill_page, html_list, legend, part, plot_data
from cce_lab.report.vega import HINT, can_draw, palette

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cce.footprint import Footprint
    from cce.runs import LoadedRun, Neighbours, RunHistory
    from cce_lab.report.vega import Plot

REASONS = (OSError, TypeError, ValueError)  # why a part cannot be made; anything else is a fault of ours
LONGEST = 80  # characters of a raw value


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
        series = max(
            ({row["series"] for row in plot.spec["data"]["values"]} for plot in self.plots), key=len, default=set()
        )
        kind = "plots single" if len(self.plots) == 1 else "plots"
        pieces = [
            legend(palette(series)) if len(series) > 1 else "",
            f'<div class="{kind}">{boxes}</div>' if boxes else "",
            self.html,
            *(f'<p class="quiet">Left out: {escape(line)}</p>' for line in self.left_out),
        ]
        return f'<section id="{self.name}" class="group"><h2>{escape(self.title)}</h2>{"".join(pieces)}</section>'


def make_parts(run: LoadedRun, history: RunHistory, data: Path | str | None) -> list[Part]:
    """All parts in their order; one that cannot be made says why."""
    makers: dict[str, tuple[str, Callable[[], Part]]] = {
        "scores": ("Scores", lambda: _scores(run, history)),
        "tables": ("Tables", lambda: _tables(run, history)),
        "clusterings": ("Clusterings", lambda: _clusterings(run, history)),
        "neighbours": ("Nearest values", lambda: _neighbours(run)),
        "calibration": ("Calibration", lambda: _calibration(run, data)),
    }
    return [_made(name, title, make) for name, (title, make) in makers.items()]


def _made(name: str, title: str, make: Callable[[], Part]) -> Part:
    try:
        return make()
    except REASONS as error:
        return Part(name, title, left_out=(" ".join(str(error).split()),))


def _scores(run: LoadedRun, history: RunHistory) -> Part:
    plots = curve_plots(history, run.config.best_by)
    left_out = [] if history.curve else ["the curves: the run has no validations yet."]
    if "losses" in history.missing:
        left_out.append(f"the training loss: {history.missing['losses']}.")
    return Part("scores", "Scores", plots=plots, left_out=tuple(left_out))


def _tables(run: LoadedRun, history: RunHistory) -> Part:
    columns = [
        Column("table", is_text=True),
        Column("method", is_text=True),
        *(Column(each) for each in LEDGER_NUMBERS),
    ]
    table = Table("ledger", "Tables", columns, ledger_rows(footprints(run, history)))
    return Part("tables", "Tables", table.as_html())


def footprints(run: LoadedRun, history: RunHistory) -> Sequence[Footprint]:
    """The tables as the record has them, with gradients and optimizer state; without a record, those of the model."""
    from cce.diagnostics import summary

    return history.record.tables if history.record and history.record.tables else summary(run.model).tables


def _clusterings(run: LoadedRun, history: RunHistory) -> Part:
    from cce.diagnostics import diagnose_tables

    health = {name: found.to_dict() for name, found in diagnose_tables(run.model, seed=run.config.seed).items()}
    num_rows = {name: found["num_rows"] for name, found in health.items()}
    num_rows |= {name.rpartition(".")[2]: count for name, count in num_rows.items()}  # refits are logged by feature
    events = [_events(kind, lines, num_rows) for kind, lines in _kinds(history).items() if lines]
    html = part("Pointers now", _health_table(health).as_html()) if health else ""
    html += "".join(part(table.title, table.as_html()) for table in events)
    left_out = [f"{name}: {why}." for name, why in history.missing.items() if name in ("clusterings", "refits")]
    if not (health or events):
        left_out = ["no table of this run has pointers to learn.", *left_out]
    return Part("clusterings", "Clusterings", html, event_plots(history.clusterings, num_rows), tuple(left_out))


def _kinds(history: RunHistory) -> dict[str, list[dict[str, Any]]]:
    return {"Clusterings": history.clusterings, "Refits": history.refits}


def _health_table(health: Mapping[str, Mapping[str, Any]]) -> Table:
    """How the pointers of the model at the best validation are used, beside product quantisation of its vectors."""
    columns = [Column("table", is_text=True)]
    columns += [Column(name) for name in ("H1", "H1 by PQ", "H2", "H2 by PQ", "dead rows", "moved")]
    columns[-1] = Column("moved", about="share of pointers that are not the hashes of the beginning")
    columns.append(Column("verdict", is_text=True))
    rows = []
    for name, found in health.items():
        pairs = [pair for values in zip(found["entropies"], found["golden"], strict=True) for pair in values]
        cells = [_number(value, 3) for value in (*pairs, None, None)[:4]]
        dead = Cell(found["dead_rows"], f"{found['dead_rows']:,}")
        rows.append([Cell(name), *cells, dead, Cell(found["moved"], f"{found['moved']:.0%}"), Cell(found["verdict"])])
    return Table("health", "Pointers now", columns, rows)


def _events(title: str, lines: Sequence[dict[str, Any]], num_rows: Mapping[str, int]) -> Table:
    """A line for each table that was clustered or refitted, with the greatest entropies that were possible."""
    names = ("step", "ids", "churn", "vectors moved", "H1", "H1 at most", "H2", "H2 at most", "dead rows", "seconds")
    columns = [Column("table", is_text=True), *(Column(name) for name in names)]
    return Table(title.lower(), title, columns, [_event(line, num_rows) for line in lines])


def _event(line: dict[str, Any], num_rows: Mapping[str, int]) -> list[Cell]:
    entropies = [(line.get(name), greatest_entropy(line, name, num_rows)) for name in ("H1", "H2")]
    return [
        Cell(str(line["table"])),
        *(_count(line.get(name)) for name in ("step", "num_ids")),
        *(_number(line.get(name), 3) for name in ("churn", "moved")),
        *(_number(value, 3) for pair in entropies for value in pair),
        _count(line.get("dead_rows")),
        _number(line.get("seconds"), 2),
    ]


def _neighbours(run: LoadedRun) -> Part:
    from cce.runs import nearest_values

    html, left_out = "", []
    for feature in run.schema.features:
        try:
            found = nearest_values(run, feature.name)
        except REASONS as error:
            left_out.append(f"{feature.name}: {error}")
            continue
        html += part(feature.name, _neighbour_table(feature.name, found).as_html())
    about = "The most frequent values of each feature, and those whose vectors have the greatest cosine with theirs."
    lines = tuple(dict.fromkeys(left_out))
    return Part("neighbours", "Nearest values", f'<p class="quiet">{about}</p>{html}' if html else "", left_out=lines)


def _neighbour_table(feature: str, found: Sequence[Neighbours]) -> Table:
    width = max((len(each.nearest) for each in found), default=0)
    columns = [
        Column("value", is_text=True),
        Column("id"),
        *(Column(f"nearest {i}", is_text=True) for i in range(1, width + 1)),
    ]
    rows = [
        [_value(each.value), Cell(each.id), *(_value(value, f" · {cosine:.2f}") for value, cosine in each.nearest)]
        for each in found
    ]
    return Table(f"{feature}-neighbours", feature, columns, rows)


def _value(value: str, after: str = "") -> Cell:
    shown = value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    return Cell(value, f"{shown}{after}", about=value if shown != value else "")


def _calibration(run: LoadedRun, data: Path | str | None) -> Part:
    from cce.runs import calibrate

    return Part("calibration", "Calibration", plots=[calibration_plot(calibrate(run, data))])


def _number(value: Any, digits: int) -> Cell:
    return Cell(value, f"{value:.{digits}f}") if is_number(value) else Cell(None)


def _count(value: Any) -> Cell:
    return Cell(value, f"{value:,}") if is_number(value) else Cell(None)
