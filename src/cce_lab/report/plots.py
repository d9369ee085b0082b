"""The charts of a section, from which page and pictures are drawn: scores and training curves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cce_lab.report.factors import is_number
from cce_lab.report.groups import WORDS, Group
from cce_lab.report.vega import (
    STEPS,
    Plot,
    Style,
    band,
    bright,
    by_budget,
    colours,
    dots,
    layered,
    level,
    line,
    log_sizes,
    near,
    number,
    score_tip,
    tip,
)

if TYPE_CHECKING:
    from cce.evaluation import MetricInfo

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
