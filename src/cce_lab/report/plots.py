"""The charts of a section, which the page and the pictures are both drawn from: scores, training, clusterings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cce_lab.report.factor_plot import factor_plot
from cce_lab.report.factors import is_number, spread
from cce_lab.report.groups import WORDS, budget_words
from cce_lab.report.vega import (
    STEPS,
    Plot,
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
    from collections.abc import Iterator, Mapping, Sequence

    from cce.evaluation import MetricInfo
    from cce_lab.report.groups import Budget, Group
    from cce_lab.report.vega import Spec, Style

UNITS = {"training": "B", "bytes": "B", "params": ""}  # the axes to choose from
OVER_SEEDS = "Mean over seeds; the band goes from the least to the greatest."
OVER_TABLES = "Mean over tables; the band goes from the least to the greatest."
FACTS = {  # of a clustering
    "churn": ("Churn", "share of ids", "The share of ids whose pointers changed."),
    "H1": ("Entropy H1", "nats", "Of single columns of pointers: low if few rows are used."),
    "H2": ("Entropy H2", "nats", "Of pairs of columns: near H1 if columns say the same, which is table collapse."),
}
OF_CURVES = "One run of each series, that of the lowest seed. Dotted: clusterings. Dashed: runs that are not finished."
MOST_POINTS = 60  # of one curve: more cannot be seen
Row = dict[str, Any]


def plots_of(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> list[Plot]:
    """The charts of a group, of every metric there is; those that would be empty are left out."""
    scores = [score_plot(group, styles, info, size) for info in group.metrics for size in UNITS]
    rows = curve_rows(group)
    scored = [info for info in group.metrics if any(score_field(info.name) in row for row in rows)]
    curves = [curve_plot(rows, styles, info) for info in scored]
    events = [event_plot(group, styles, name) for name in FACTS]
    plots = [factor_plot(group, styles, expected), *scores, *curves, *events]
    return [plot for plot in plots if plot.spec["data"]["values"]]


def score_plot(group: Group, styles: Mapping[str, Style], info: MetricInfo, size: str) -> Plot:
    """A score against a size: a line for each series, the band from least to greatest, the full table dashed."""
    rows = [row for budget in group.budgets for row in _score_rows(budget, info.name, size)]
    y = near("mean", f"test {info.title}")
    tips = ("series", "budget", WORDS[size], "mean", "least", "greatest", "seeds")
    full = group.baseline.over_seeds(info.name) if group.baseline else None
    layers = level(full.mean, f"full table {info.format(full.mean)}") if full else []  # below, so points come first
    layers += [band(y, "area", 0.2), band(y, "rule", 0.6), line(y), dots(y, styles, [tip(name) for name in tips])]
    x = number("size", f"{WORDS[size]} of all tables", **log_sizes(rows, ("size",), UNITS[size]))
    spec = layered(rows, {"x": x, "color": colours(styles, rows)}, layers)
    name = f"{file_word(info.name)}-{size}"
    return Plot(name, f"{info.title} against {WORDS[size]}", spec, OVER_SEEDS, metric=info.name, size=size)


def _score_rows(budget: Budget, score: str, size: str) -> list[dict[str, Any]]:
    """One row; none without a score, or without a size, which a logarithmic axis cannot show."""
    found = budget.over_seeds(score)
    if found is None or not budget.size(size):
        return []
    scores = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
    row = {"series": budget.series, "budget": budget.label, "size": budget.size(size), "seeds": found.count}
    return [row | {name: round(value, 6) for name, value in scores.items()}]


def curve_plot(rows: list[Row], styles: Mapping[str, Style], info: MetricInfo) -> Plot:
    """Validations of one run of each series under the chosen budget, by one metric; its clusterings are marked."""
    field = score_field(info.name)
    y = near(field, f"validation {info.title}")
    scale = {"domain": [0, 1], "range": [[1, 0], [6, 3]]}
    dashes = {"field": "live", "type": "nominal", "legend": None, "scale": scale}
    run = {"field": "run", "type": "nominal"}
    scored = {"transform": [{"filter": f"isValid(datum.{field})"}]}
    tips = [*(tip(name) for name in ("series", "budget", "step", "epoch")), score_tip(field, info.title)]
    layers = [_marks(), line(y, detail=run, strokeDash=dashes) | scored, dots(y, styles, tips, size=30) | scored]
    last = max(row["step"] for row in rows)  # of all budgets, so that the axis stays when another is chosen
    x = number("step", "step", axis=STEPS, scale={"domain": [0, last]})
    spec = by_budget(layered(rows, {"x": x, "color": colours(styles, rows)}, layers))
    name, title = f"{file_word(info.name)}-curves", f"Training curves: {info.title}"
    return Plot(name, title, spec, OF_CURVES, has_budgets=True, metric=info.name)


def _marks() -> Spec:
    """A dotted rule at each clustering."""
    tips = [tip(name) for name in ("series", "budget", "step", "clustered")]
    mark = {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5}
    encoding = {"tooltip": tips, "opacity": bright(0.7)}
    return {"transform": [{"filter": "isValid(datum.clustered)"}], "mark": mark, "encoding": encoding}


def event_plot(group: Group, styles: Mapping[str, Style], name: str) -> Plot:
    """A measurement of every clustering: the mean over tables, and the band from the least to the greatest."""
    title, unit, about = FACTS[name]
    rows = event_rows(group, name)
    y = near("mean", unit)
    tips = ("series", "budget", "step", "mean", "least", "greatest", "tables")
    layers = [band(y, "area", 0.15), line(y), dots(y, styles, [tip(name) for name in tips])]
    shared = {"x": number("step", "step", axis=STEPS), "color": colours(styles, rows)}
    spec = by_budget(layered(rows, shared, layers)) | {"height": 200}
    return Plot(name.lower(), title, spec, f"{about} {OVER_TABLES}", has_budgets=True)


def curve_rows(group: Group) -> list[Row]:
    """The validations of a run of each series and budget, its clusterings, and all runs that are not finished."""
    rows: list[Row] = []
    names = [info.name for info in group.metrics]
    for run, (series, budget, curve, events, is_live) in enumerate(_runs(group)):
        about = {"series": series, "budget": budget, "run": run, "live": int(is_live)}
        lines = [_scores(line, names) for line in thin(curve, group.leading)]
        rows += [about | line for line in lines if line.keys() - {"step", "epoch"}]
        steps = sorted({event["step"] for event in events if "step" in event})
        rows += [{**about, "step": step, "clustered": _words(events, step)} for step in steps]
    return rows


def event_rows(group: Group, name: str) -> list[Row]:
    """A measurement of every clustering: its mean, least and greatest over tables."""
    rows: list[Row] = []
    for run, (series, budget, _, events, _) in enumerate(_runs(group)):
        for step in sorted({event["step"] for event in events if "step" in event}):
            found = spread(event[name] for event in events if event.get("step") == step and is_number(event.get(name)))
            if found is not None:
                values = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
                rounded = {key: round(value, 5) for key, value in values.items()}
                rows.append(
                    {"series": series, "budget": budget, "run": run, "step": step, "tables": found.count, **rounded}
                )
    return rows


def thin(points: Sequence[Row], leading: MetricInfo) -> list[Row]:
    """At most `MOST_POINTS` of them, evenly, with the first, the last and the best."""
    if len(points) <= MOST_POINTS:
        return list(points)
    indices = {round(index * (len(points) - 1) / (MOST_POINTS - 1)) for index in range(MOST_POINTS)}
    scored = [index for index, point in enumerate(points) if is_number(point.get(leading.name))]
    indices |= {min(scored, key=lambda index: leading.loss(points[index][leading.name]))} if scored else set()
    return [points[index] for index in sorted(indices)]


def _runs(group: Group) -> Iterator[tuple[str, str, list[Row], list[Row], bool]]:
    """Series, budget, validations, clusterings, and whether the run is still under way."""
    for budget in group.budgets:
        yield budget.series, budget.label, budget.first.whole_curve, budget.first.events, False
    for run in group.live:
        method = str(run.config.get("method", "cce"))
        series = run.series or method
        yield series, budget_words(run.config), run.of_kind("validation"), run.of_kind("cluster"), True


def _scores(line: Row, names: Sequence[str]) -> Row:
    """The position of a validation and its numeric scores."""
    where = {name: round(line[name]) for name in ("step", "epoch") if is_number(line.get(name))}
    return where | {score_field(name): round(line[name], 5) for name in names if is_number(line.get(name))}


def score_field(metric: str) -> str:
    """The name of a score among the fields of a row: letters that need no quotes in Vega."""
    return "score_" + re.sub(r"\W", "_", metric)


def file_word(metric: str) -> str:
    """The name of a metric among the names of files."""
    return re.sub(r"[^a-z0-9_]+", "-", metric.lower())


def _words(events: Sequence[Row], step: int) -> str:
    """`26 tables, churn 0.41`."""
    found = [event for event in events if event.get("step") == step]
    churn = spread(event["churn"] for event in found if is_number(event.get("churn")))
    tables = f"{len(found)} table{'' if len(found) == 1 else 's'}"
    return tables if churn is None else f"{tables}, churn {churn.mean:.2f}"
