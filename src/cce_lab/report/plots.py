"""The charts of a section, from which page and pictures are drawn: scores, factors, training, clusterings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cce.text import format_ratio
from cce_lab.report.factors import Kind, is_number, spread
from cce_lab.report.groups import WORDS, budget_words
from cce_lab.report.tables import expected_value
from cce_lab.report.vega import (
    GREY,
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
    from cce_lab.report.factors import Factor
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
OF = {measure: WORDS[measure] for measure in ("training", "bytes", "params")}
ABOUT = (
    "Of all tables. Filled: measured between two sizes. Hollow: a bound (≥, ≤) or an extrapolation. A bar is the range "
    "over seeds, or of an extrapolation. Words alone: the full table's score is not reached, or not with less."
)
TICKS = "A grey tick is what the recipe expects of params."
ROW = 20  # pixels of a point
HAS_POINT = {"filter": "isValid(datum.factor)"}
FILLED = {"filter": f"datum.how == '{Kind.MEASURED}'"}
HOLLOW = {"filter": f"datum.how != '{Kind.MEASURED}'"}
DOT = {"type": "point", "filled": True, "size": 90}
RING = {"type": "point", "filled": False, "size": 80, "strokeWidth": 2}
ROOM = 0.25  # of the axis, on its right, for words
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


def factor_plot(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> Plot:
    """A point for each series and measure, or words where there is none."""
    rows = [row for name in group.series if name != group.full_series for row in _factor_rows(group, name, expected)]
    ranked = sorted(rows, key=lambda row: (row["of"] != OF[group.lead], not row["is_reached"], -row.get("factor", 0)))
    order = list(dict.fromkeys(row["series"] for row in ranked))
    sizes = log_sizes(rows, ("factor", "low", "high", "wanted"), "×", room=ROOM)
    x = number("factor", f"times fewer than the full table, at its {group.leading.title}", **sizes)
    shared = {
        "y": {"field": "series", "type": "nominal", "title": None, "sort": order, "axis": {"labelLimit": 160}},
        "yOffset": {"field": "of", "type": "nominal", "sort": list(OF.values())},
        "color": colours(styles, rows) | {"legend": None},
        "tooltip": [tip(name) for name in ("series", "of", "says", "expected", "how")],
    }
    spec = layered(rows, shared, [*_factor_layers(x), *_expected_ticks(x, rows)]) | {
        "height": ROW * len(OF) * max(len(order), 1)
    }
    about = f"{ABOUT} {TICKS}" if any("wanted" in row for row in rows) else ABOUT
    return Plot("factors", "Compression factors", spec, about)


def _factor_layers(x: Spec) -> list[Spec]:
    legend = {"title": None, "orient": "top", "columns": 2, "symbolFillColor": GREY, "symbolStrokeColor": GREY}
    scale = {"domain": list(OF.values()), "range": ["triangle-up", "square", "circle"]}
    shape = {"field": "of", "type": "nominal", "scale": scale, "legend": legend}
    words = {"type": "text", "align": "left", "dx": 10, "fontSize": 11}
    ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "opacity": bright(0.35)}
    point = {"x": x, "shape": shape, "opacity": bright(1.0)}
    return [
        {"transform": [HAS_POINT], "mark": {"type": "rule", "strokeWidth": 6}, "encoding": ends},
        *(
            {"transform": [HAS_POINT, kind], "mark": mark, "encoding": point}
            for kind, mark in ((FILLED, DOT), (HOLLOW, RING))
        ),
        {"mark": words, "encoding": {"x": x | {"field": "high"}, "text": {"field": "says"}, "opacity": bright(1.0)}},
    ]


def _expected_ticks(x: Spec, rows: list[Row]) -> list[Spec]:
    """A tick at what was expected, if anything was."""
    if not any("wanted" in row for row in rows):
        return []
    encoding = {"x": x | {"field": "wanted"}, "color": {"value": GREY}}
    mark = {"type": "tick", "thickness": 3, "size": 18}
    return [{"transform": [{"filter": "isValid(datum.wanted)"}], "mark": mark, "encoding": encoding}]


def _factor_rows(group: Group, name: str, expected: Mapping[str, Any]) -> list[Row]:
    """The rows of a series by each measure; a single one, in words, if none of them has a point; none without a full
    table to compare with.
    """
    if group.baseline_score is None:
        return []
    rows = {of: _factor_row(name, of, group.factor(name, of), expected) for of in OF}
    return list(rows.values()) if any("factor" in row for row in rows.values()) else [rows[group.lead]]


def _factor_row(name: str, of: str, factor: Factor, expected: Mapping[str, Any]) -> Row:
    table = expected.get("compression")
    wanted = expected_value(table.get(name)) if isinstance(table, dict) and of == "params" else None
    row: Row = {"series": name, "of": OF[of], "expected": "–" if wanted is None else format_ratio(wanted)}
    row |= {"how": str(factor.kind), "is_reached": factor.is_reached, **({} if wanted is None else {"wanted": wanted})}
    if factor.value is None or factor.high is None or factor.high < 1:
        return row | {"high": 1.0, "says": _without_point(factor)}
    low, high = factor.low or factor.high, factor.high
    if factor.seeds is not None and factor.kind is Kind.MEASURED:
        low, high = min(factor.seeds.least, low), max(factor.seeds.greatest, high)
    return row | {"factor": max(factor.value, 1.0), "low": max(low, 1.0), "high": high, "says": _says(factor)}


def _says(factor: Factor) -> str:
    """The factor, and how many seeds reach it if not all do; that it is extrapolated shows by its point."""
    text = str(factor).removesuffix(" (extrapolated)")
    return f"{text}, {factor.seeds_words}" if factor.seeds_words else text


def _without_point(factor: Factor) -> str:
    if factor.high is not None:
        return "< 1×"
    return "never" if factor.kind is Kind.NEVER else "not reached"
