"""All charts in Vega-Lite: of a section of a report, of the page of a run, and the figures of theory as pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.evaluation import MetricInfo, describe_metric
from cce.files import write_atomic
from cce_lab.report import vega
from cce_lab.report.factors import is_number
from cce_lab.report.groups import WORDS, Group
from cce_lab.report.vega import Plot, Spec, Style

if TYPE_CHECKING:
    from cce.runs import RunHistory

UNITS = {"training": "B", "bytes": "B", "params": ""}  # the axes to choose from
OVER_SEEDS = "Mean over seeds; the band goes from the least to the greatest."
OF_CURVES = "One run of each series: its best budget, the lowest seed."
DOTTED = "Dotted: clusterings and refits."
OF_SIZES = "One run of each series, that of the lowest seed, without refits. The largest size is int8 rows."
MOST_POINTS = 60  # of one curve: more cannot be seen
TRAINED, FINALIZED, REFITTED = "training", "finalized", "refits"
PHASES = {
    name: Style(vega.HUES[index], vega.SHAPES[index]) for index, name in enumerate((TRAINED, FINALIZED, REFITTED))
}
Row = dict[str, Any]


def plots_of(group: Group, styles: Mapping[str, Style]) -> list[Plot]:
    """The charts of a group; one of a single dot is left out, as the summary has its numbers."""
    scores = [score_plot(group, styles, info, size) for info in group.metrics for size in UNITS]
    plots = [*scores, sizes_plot(group, styles), curve_plot(group, styles)]
    return [plot for plot in plots if plot.num_points > 1]


def score_plot(group: Group, styles: Mapping[str, Style], info: MetricInfo, size: str) -> Plot:
    """A score against a size: a line for each series, the band from least to greatest, the full table dashed."""
    rows: list[Row] = []
    for budget in group.budgets:
        found = budget.over_seeds(info.name)
        if found is not None and budget.size(size):  # a logarithmic axis cannot show zero
            row = {"series": budget.series, "budget": budget.label, "size": budget.size(size), "seeds": found.count}
            scores = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
            rows.append(row | {name: round(value, 6) for name, value in scores.items()})
    y = vega.near("mean", f"test {info.title}")
    tips = [vega.tip("series"), vega.tip("budget"), vega.tip("size", WORDS[size], ",.0f")]
    tips += [*(vega.tip(name, form=vega.SCORE) for name in ("mean", "least", "greatest")), vega.tip("seeds")]
    full = group.baseline.over_seeds(info.name) if group.baseline else None
    layers = vega.level(full.mean, f"full table {info.format(full.mean)}") if full else []  # below the points
    layers += [vega.band(y, "area", 0.2), vega.band(y, "rule", 0.6), vega.line(y), vega.dots(y, styles, tips)]
    x = vega.number("size", f"{WORDS[size]} of all tables", **vega.log_sizes(rows, UNITS[size]))
    spec = vega.layered(rows, {"x": x, "color": vega.colours(styles, rows)}, layers)
    name = f"{file_word(info.name)}-{size}"
    return Plot(name, f"{info.title} against {WORDS[size]}", spec, OVER_SEEDS, metric=info.name, size=size)


def sizes_plot(group: Group, styles: Mapping[str, Style]) -> Plot:
    """Validation loss against bytes served, of every size of a series that was validated."""
    rows: list[Row] = []
    for series, budgets in group.series.items():
        scored = {s["nbytes"]: s for budget in budgets for s in budget.first.sizes if is_number(s["loss"])}
        for nbytes, size in sorted(scored.items()):
            bits = "int8 rows" if size["bits"] is None else f"{size['bits']:.1f}"
            rows.append({"series": series, "size": nbytes, "bits": bits, "mean": round(size["loss"], 6)})
    y = vega.near("mean", f"validation {group.leading.title}")
    tips = [vega.tip("series"), vega.tip("size", "served bytes", ",.0f"), vega.tip("bits")]
    tips.append(vega.tip("mean", "validation loss", vega.SCORE))
    x = vega.number("size", "served bytes of finalized tables", **vega.log_sizes(rows, "B"))
    spec = vega.layered(rows, {"x": x, "color": vega.colours(styles, rows)}, [vega.line(y), vega.dots(y, styles, tips)])
    return Plot("sizes", "One training, every size: validation loss against served bytes", spec, OF_SIZES)


def curve_plot(group: Group, styles: Mapping[str, Style]) -> Plot:
    """Validations of the best budget of each series, by the leading metric; its clusterings are marked."""
    rows: list[Row] = []
    leading = group.leading
    for series, budgets in group.series.items():
        best = min(budgets, key=group.mean_loss)
        named = {"series": series, "budget": best.label}
        rows += [named | row for row in curve_rows(best.first.whole_curve, leading)]
        steps = sorted({event["step"] for event in best.first.events if "step" in event})
        rows += [named | {"step": step, "marked": 1} for step in steps]
    spec = curve_spec(rows, styles, f"validation {leading.title}")
    about = f"{OF_CURVES} {DOTTED}" if any("marked" in row for row in rows) else OF_CURVES
    return Plot(f"{file_word(leading.name)}-curves", f"Training curves: {leading.title}", spec, about)


def curve_rows(validations: Sequence[Row], info: MetricInfo) -> list[Row]:
    """Steps and scores: at most `MOST_POINTS` of them, evenly, with the first, the last and the best."""
    points = [point for point in validations if is_number(point.get(info.name))]
    indices = set(range(len(points)))
    if len(points) > MOST_POINTS:
        indices = {round(index * (len(points) - 1) / (MOST_POINTS - 1)) for index in range(MOST_POINTS)}
        indices.add(min(range(len(points)), key=lambda index: info.loss(points[index][info.name])))
    found = [points[index] for index in sorted(indices)]
    return [{"step": round(point["step"]), "score": round(point[info.name], 6)} for point in found]


def curve_spec(rows: list[Row], styles: Mapping[str, Style], title: str) -> Spec:
    """A line with points for each series, against steps; dotted rules where a row is `marked`."""
    y = vega.near("score", title)
    scored = {"transform": [{"filter": "isValid(datum.score)"}]}
    tips = [vega.tip(name) for name in ("series", "budget", "step") if any(name in row for row in rows)]
    marks = {
        "transform": [{"filter": "isValid(datum.marked)"}],
        "mark": {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5},
        "encoding": {"tooltip": tips, "opacity": vega.bright(0.7)},
    }
    layers = [
        marks,
        vega.line(y) | scored,
        vega.dots(y, styles, [*tips, vega.tip("score", title, vega.SCORE)], size=30) | scored,
    ]
    x = vega.number("step", "step", axis=vega.STEPS, scale={"domainMin": 0})
    return vega.layered(rows, {"x": x, "color": vega.colours(styles, rows)}, layers)


def file_word(metric: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", metric.lower())


def run_plots(history: RunHistory, leading: str) -> list[Plot]:
    """A chart for each metric of the validations, the leading one first, by phases; and one of the training loss."""
    curve, record = history.curve, history.record
    names = dict.fromkeys(name for each in curve for name in each if is_number(each[name]))
    metrics = sorted((name for name in names if name not in ("step", "epoch")), key=lambda name: name != leading)
    phases = {TRAINED: curve}
    if record and record.curve_before_finalize:
        phases = {TRAINED: record.curve_before_finalize, FINALIZED: record.curve[:1], REFITTED: record.curve[1:]}
    events = {TRAINED: history.clusterings, REFITTED: history.refits}
    marks = [
        {"series": phase, "step": step, "marked": 1}
        for phase, lines in events.items()
        for step in sorted({each["step"] for each in lines})
    ]
    plots = []
    for name in metrics:
        info = describe_metric(name)
        rows = [{"series": phase, **row} for phase, lines in phases.items() for row in curve_rows(lines, info)]
        spec = curve_spec([*rows, *marks], PHASES, f"validation {info.title}")
        about = DOTTED if marks else ""
        plots.append(Plot(f"{file_word(name)}-curve", info.title, spec, about))
    losses = [each for each in history.losses if is_number(each.get("loss"))]
    some = losses[:: 1 + len(losses) // MOST_POINTS]
    rows = [{"series": TRAINED, "step": each["step"], "score": round(each["loss"], 6)} for each in some]
    if rows:
        plots.append(Plot("loss", "Training loss", curve_spec(rows, PHASES, "training loss")))
    return plots


def draw_figure(figure: Any, folder: Path) -> Path:
    """Write `NAME.svg`, whole or not at all; give its path."""
    path = folder / f"{figure.name}.svg"
    write_atomic(path, vega.picture(figure_spec(figure), title=figure.title, kind="svg"))
    return path


def figure_spec(figure: Any) -> Spec:
    """A figure in Vega-Lite: lines with bands; what is compared with is dashed, and grey if there is one of it."""
    references = [each.name for each in figure.series if each.is_reference]
    hued = [each.name for each in figure.series if len(references) != 1 or not each.is_reference]
    styles = {name: Style(vega.GREY, "square") for name in references}
    styles |= {name: Style(vega.HUES[index % len(vega.HUES)], vega.SHAPES[0]) for index, name in enumerate(hued)}
    dashes = {"domain": [False, True], "range": [[1, 0], [5, 4]]}
    dash = {"field": "is_reference", "type": "nominal", "legend": None, "scale": dashes}
    y = vega.number("mean", figure.y_label, scale={"type": "log"} if figure.log_y else {"zero": False})
    area = vega.band(y, "area", 0.15) | {"transform": [{"filter": "isValid(datum.least)"}]}
    rows = figure_rows(figure)
    shared = {"x": vega.number("x", figure.x_label), "color": vega.colours(styles, rows)}
    return vega.layered(rows, shared, [area, vega.line(y, strokeDash=dash)])


def figure_rows(figure: Any) -> list[Row]:
    """One record for each number; what a logarithmic axis cannot show is left out."""
    found = []
    for each in figure.series:
        for index, (x, y) in enumerate(zip(each.x, each.y, strict=True)):
            if figure.log_y and y <= 0:
                continue
            ends = {"least": each.low[index], "greatest": each.high[index]} if each.low else {}
            found.append({"series": each.name, "x": x, "mean": y, "is_reference": each.is_reference, **ends})
    return found
