"""All charts in Vega-Lite: of a section of a report, of the page of a run, and the figures of theory as pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.evaluation import describe_metric
from cce.files import write_atomic
from cce_lab.report.factors import is_number
from cce_lab.report.groups import WORDS, Group
from cce_lab.report.vega import (
    GREY,
    HEIGHT,
    HINT,
    HUES,
    STEPS,
    Plot,
    Spec,
    Style,
    band,
    bright,
    by_budget,
    can_draw,
    colours,
    dots,
    layered,
    level,
    line,
    log_sizes,
    near,
    number,
    palette,
    picture,
    score_tip,
    tip,
)

if TYPE_CHECKING:
    from cce.evaluation import MetricInfo
    from cce.runs import RunHistory

UNITS = {"training": "B", "bytes": "B", "params": ""}  # the axes to choose from
OVER_SEEDS = "Mean over seeds; the band goes from the least to the greatest."
OF_CURVES = "One run of each series, that of the lowest seed. Dotted: clusterings."
OF_SIZES = "One run of each series, that of the lowest seed, without refits. The largest size is int8 rows."
MOST_POINTS = 60  # of one curve: more cannot be seen
Row = dict[str, Any]


def plots_of(group: Group, styles: Mapping[str, Style]) -> list[Plot]:
    """The charts of a group, of every metric there is; those that would be empty are left out."""
    scores = [score_plot(group, styles, info, size) for info in group.metrics for size in UNITS]
    rows = curve_rows(group)
    scored = [info for info in group.metrics if any(score_field(info.name) in row for row in rows)]
    plots = [*scores, sizes_plot(group, styles), *(curve_plot(rows, styles, info) for info in scored)]
    return [plot for plot in plots if plot.spec["data"]["values"]]


def score_plot(group: Group, styles: Mapping[str, Style], info: MetricInfo, size: str) -> Plot:
    """A score against a size: a line for each series, the band from least to greatest, the full table dashed."""
    rows: list[Row] = []
    for budget in group.budgets:
        found = budget.over_seeds(info.name)
        if found is not None and budget.size(size):  # a logarithmic axis cannot show zero
            row = {"series": budget.series, "budget": budget.label, "size": budget.size(size), "seeds": found.count}
            scores = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
            rows.append(row | {name: round(value, 6) for name, value in scores.items()})
    y = near("mean", f"test {info.title}")
    tips = ("series", "budget", WORDS[size], "mean", "least", "greatest", "seeds")
    full = group.baseline.over_seeds(info.name) if group.baseline else None
    layers = level(full.mean, f"full table {info.format(full.mean)}") if full else []  # below, so points come first
    layers += [band(y, "area", 0.2), band(y, "rule", 0.6), line(y), dots(y, styles, [tip(name) for name in tips])]
    x = number("size", f"{WORDS[size]} of all tables", **log_sizes([row["size"] for row in rows], UNITS[size]))
    spec = layered(rows, {"x": x, "color": colours(styles, rows)}, layers)
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
    y = near("mean", f"validation {group.leading.title}")
    tips = [tip("series"), tip("served bytes"), tip("bits"), score_tip("mean", "validation loss")]
    x = number("size", "served bytes of finalized tables", **log_sizes([row["size"] for row in rows], "B"))
    spec = layered(rows, {"x": x, "color": colours(styles, rows)}, [line(y), dots(y, styles, tips)])
    return Plot("sizes", "One training, every size: validation loss against served bytes", spec, OF_SIZES)


def curve_plot(rows: list[Row], styles: Mapping[str, Style], info: MetricInfo) -> Plot:
    """Validations of one run of each series under the chosen budget, by one metric; its clusterings are marked."""
    field = score_field(info.name)
    y = near(field, f"validation {info.title}")
    scored = {"transform": [{"filter": f"isValid(datum.{field})"}]}
    tips = [*(tip(name) for name in ("series", "budget", "step", "epoch")), score_tip(field, info.title)]
    marks = {
        "transform": [{"filter": "isValid(datum.clustered)"}],
        "mark": {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5},
        "encoding": {"tooltip": [tip(name) for name in ("series", "budget", "step")], "opacity": bright(0.7)},
    }
    detail = {"field": "run", "type": "nominal"}
    layers = [marks, line(y, detail=detail) | scored, dots(y, styles, tips, size=30) | scored]
    last = max(row["step"] for row in rows)  # of all budgets, so that the axis stays when another is chosen
    x = number("step", "step", axis=STEPS, scale={"domain": [0, last]})
    spec = by_budget(layered(rows, {"x": x, "color": colours(styles, rows)}, layers))
    name, title = f"{file_word(info.name)}-curves", f"Training curves: {info.title}"
    return Plot(name, title, spec, OF_CURVES, has_budgets=True, metric=info.name)


def curve_rows(group: Group) -> list[Row]:
    """The validations of a run of each series and budget, and its clusterings."""
    rows: list[Row] = []
    names = [info.name for info in group.metrics]
    for run, budget in enumerate(group.budgets):
        about = {"series": budget.series, "budget": budget.label, "run": run}
        for point in thin(budget.first.whole_curve, group.leading):
            scores = {score_field(name): round(point[name], 5) for name in names if is_number(point.get(name))}
            where = {name: round(point[name]) for name in ("step", "epoch") if is_number(point.get(name))}
            rows += [about | where | scores] if scores else []
        steps = sorted({event["step"] for event in budget.first.events if "step" in event})
        rows += [{**about, "step": step, "clustered": 1} for step in steps]
    return rows


def thin(points: Sequence[Row], leading: MetricInfo) -> list[Row]:
    """At most `MOST_POINTS` of them, evenly, with the first, the last and the best."""
    if len(points) <= MOST_POINTS:
        return list(points)
    indices = {round(index * (len(points) - 1) / (MOST_POINTS - 1)) for index in range(MOST_POINTS)}
    scored = [index for index, point in enumerate(points) if is_number(point.get(leading.name))]
    indices |= {min(scored, key=lambda index: leading.loss(points[index][leading.name]))} if scored else set()
    return [points[index] for index in sorted(indices)]


def score_field(metric: str) -> str:
    """The name of a score among the fields of a row: letters that need no quotes in Vega."""
    return "score_" + re.sub(r"\W", "_", metric)


def file_word(metric: str) -> str:
    """The name of a metric among the names of files."""
    return re.sub(r"[^a-z0-9_]+", "-", metric.lower())


MARKED = "Dotted: clusterings and refits."


def curve_plots(history: RunHistory, leading: str) -> list[Plot]:
    """A chart for each metric of the validations, the leading one first, and one of the training loss."""
    names = dict.fromkeys(name for each in history.curve for name in each if is_number(each[name]))
    metrics = [name for name in names if name not in ("step", "epoch")]
    metrics.sort(key=lambda name: name != leading)
    steps = sorted({event["step"] for event in (*history.clusterings, *history.refits)})
    plots = []
    for name in metrics:
        info, field = describe_metric(name), score_field(name)
        scored = [each for each in history.curve if is_number(each.get(name))]
        points = [{"step": each["step"], field: round(each[name], 6)} for each in thin(scored, info)]
        spec = _by_step("validation", points, field, f"validation {info.title}", steps)
        plots.append(Plot(f"{file_word(name)}-curve", info.title, spec, MARKED if steps else ""))
    losses = [each for each in history.losses if is_number(each.get("loss"))]
    if losses:
        some = losses[:: 1 + len(losses) // MOST_POINTS]
        points = [{"step": each["step"], "loss": round(each["loss"], 6)} for each in some]
        spec = _by_step("training", points, "loss", "training loss", steps)
        plots.append(Plot("loss", "Training loss", spec, "As it was logged."))
    return plots


def _by_step(series: str, points: Sequence[Row], field: str, title: str, steps: Sequence[int]) -> Spec:
    """A line with points, and dotted rules at some steps."""
    rows = [{"series": series, **point} for point in points]
    marked: list[Row] = [{"series": series, "step": step, "marked": 1} for step in steps]
    styles, y = palette([series]), near(field, title)
    scored = {"transform": [{"filter": f"isValid(datum.{field})"}]}
    rule = {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5, "color": GREY}
    marks = {"transform": [{"filter": "isValid(datum.marked)"}], "mark": rule, "encoding": {"color": {"value": GREY}}}
    tips = [tip("step"), score_tip(field, title)]
    layers = [marks, line(y) | scored, dots(y, styles, tips, size=30) | scored]
    x = number("step", "step", axis=STEPS)
    return layered([*rows, *marked], {"x": x, "color": colours(styles, rows)}, layers)


KINDS = ("svg", "png")


def draw_figure(figure: Any, folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png`, whole or not at all; give their paths."""
    if not can_draw():
        raise ModuleNotFoundError(f"no picture: {HINT}")
    paths = {kind: folder / f"{figure.name}.{kind}" for kind in KINDS}
    for kind, path in paths.items():
        write_atomic(path, picture(figure_spec(figure), title=figure.title, kind=kind))
    return list(paths.values())


def figure_spec(figure: Any) -> Spec:
    """A figure in Vega-Lite: bars where its places have names, lines with bands otherwise."""
    return {"height": HEIGHT} | (_bars(figure) if figure.ticks else _lines(figure))


def _lines(figure: Any) -> Spec:
    scale = {"type": "log"} if figure.log_y else {"zero": False}
    dashes = {"domain": [False, True], "range": [[1, 0], [5, 4]]}
    y = number("y", figure.y_label, scale=scale)
    band = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "area", "opacity": 0.15, "clip": True},
        "encoding": {"y": y | {"field": "low"}, "y2": {"field": "high"}},
    }
    dash = {"field": "is_reference", "type": "nominal", "legend": None, "scale": dashes}
    line = {"mark": {"type": "line", "clip": True, "strokeWidth": 2}, "encoding": {"y": y, "strokeDash": dash}}
    shared = {"x": number("x", figure.x_label), "color": _colours(figure)}
    return {"data": {"values": _points(figure)}, "encoding": shared, "layer": [band, line]}


def _bars(figure: Any) -> Spec:
    points = [point for point in _points(figure) if not point["is_reference"]]
    encoding = {
        "x": {
            "field": "tick",
            "type": "nominal",
            "title": figure.x_label,
            "sort": list(figure.ticks),
            "axis": {"labelAngle": 0},
        },
        "xOffset": {"field": "series", "type": "nominal"},
        "y": number("y", figure.y_label),
        "color": _colours(figure),
    }
    values = [point | {"tick": figure.ticks[int(point["x"])]} for point in points]
    return {"data": {"values": values}, "mark": "bar", "encoding": encoding}


def _colours(figure: Any) -> Spec:
    names = [line.name for line in figure.series if not (figure.ticks and line.is_reference)]
    legend = {"labelLimit": 300, "symbolOpacity": 1, "symbolType": "stroke", "symbolStrokeWidth": 3}
    scale = {"domain": names, "range": _hues(figure, names)}
    return {"field": "series", "type": "nominal", "title": None, "sort": names, "scale": scale, "legend": legend}


def _hues(figure: Any, names: list[str]) -> list[str]:
    """The hues of the report, in order; a single line to compare with is grey, as a full table is."""
    references = [line.name for line in figure.series if line.is_reference]
    others = [name for name in names if len(references) != 1 or name not in references]
    return [HUES[others.index(name) % len(HUES)] if name in others else GREY for name in names]


def _points(figure: Any) -> list[Spec]:
    """One record for each number; what a logarithmic axis cannot show is left out."""
    found = []
    for each in figure.series:
        for index, (x, y) in enumerate(zip(each.x, each.y, strict=True)):
            if figure.log_y and y <= 0:
                continue
            ends = {"low": each.low[index], "high": each.high[index]} if each.low else {}
            found.append({"series": each.name, "x": x, "y": y, "is_reference": each.is_reference, **ends})
    return found
