"""The charts of the page of one run: scores and losses by step, clusterings by table, and calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cce.evaluation import describe_metric
from cce_lab.report.factors import is_number
from cce_lab.report.plots import MOST_POINTS, file_word, score_field, thin
from cce_lab.report.vega import (
    GREY,
    STEPS,
    Plot,
    Spec,
    bright,
    colours,
    dots,
    layered,
    line,
    near,
    number,
    palette,
    score_tip,
    tip,
)

if TYPE_CHECKING:
    from cce.runs import CalibrationCurve, RunHistory

Row = dict[str, Any]
FACTS = {  # of a clustering
    "churn": ("Churn", "share of ids", "The share of ids whose pointers changed."),
    "H1": ("Entropy H1", "nats", "Of single columns of pointers: low if few rows are used."),
    "H2": ("Entropy H2", "nats", "Of pairs of columns: near H1 if columns say the same, which is table collapse."),
}
MARKED = "Dotted: clusterings and refits."
WITH_MAXIMA = "Dashed: the greatest value that it can have."
OF_CALIBRATION = "Bins of equal width; larger points have more rows. On the dashed line predictions are right."
PROBABILITIES: Spec = {"scale": {"domain": [0, 1], "nice": False}, "axis": {"format": ".1f", "tickCount": 6}}


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


def event_plots(clusterings: Sequence[Row], num_rows: Mapping[str, int]) -> list[Plot]:
    """Churn and entropies of every clustering, a line for each table; `num_rows` of a column, by table."""
    plots = [_event_plot(clusterings, name, num_rows) for name in FACTS]
    return [plot for plot in plots if plot.spec["data"]["values"]]


def _event_plot(clusterings: Sequence[Row], name: str, num_rows: Mapping[str, int]) -> Plot:
    title, unit, about = FACTS[name]
    rows = []
    for each in clusterings:
        if is_number(each.get(name)):
            row = {"series": each["table"], "step": each["step"], "value": round(each[name], 5)}
            most = greatest_entropy(each, name, num_rows)
            rows.append(row if most is None else row | {"maximum": round(most, 5)})
    styles, y = palette(row["series"] for row in rows), near("value", unit)
    has_maxima = any("maximum" in row for row in rows)
    dashed = {"type": "line", "strokeDash": [6, 4], "strokeWidth": 1.5}
    bound = {"mark": dashed, "encoding": {"y": near("maximum", unit), "opacity": bright(0.7)}}
    tips = [{"field": "series", "type": "nominal", "title": "table"}, tip("step"), score_tip("value", name)]
    tips += [score_tip("maximum", "maximum")] if has_maxima else []
    layers = [*([bound] if has_maxima else []), line(y), dots(y, styles, tips)]
    shared = {"x": number("step", "step", axis=STEPS), "color": colours(styles, rows)}
    spec = layered(rows, shared, layers) | {"height": 200}
    return Plot(name.lower(), title, spec, f"{about} {WITH_MAXIMA}" if has_maxima else about)


def greatest_entropy(event: Row, name: str, num_rows: Mapping[str, int]) -> float | None:
    """The greatest H1 or H2 that a clustering of so many ids to so many rows can give; None of anything else."""
    if name not in ("H1", "H2") or event["table"] not in num_rows or not event.get("num_ids"):
        return None
    order = int(name[1:])
    return min(order * math.log(num_rows[event["table"]]), math.log(event["num_ids"]))


def calibration_plot(found: CalibrationCurve) -> Plot:
    """The mean label of each bin against its mean prediction."""
    rows = [
        {"series": found.split, "predicted": round(x, 5), "observed": round(y, 5), "rows": round(weight, 3)}
        for x, y, weight in found.bins
    ]
    y = number("observed", "mean label", **PROBABILITIES)
    ends = {"values": [{"predicted": 0, "observed": 0}, {"predicted": 1, "observed": 1}]}
    right = {
        "data": ends,
        "mark": {"type": "line", "strokeDash": [6, 4]},
        "encoding": {"y": y, "color": {"value": GREY}},
    }
    tips = [score_tip("predicted", "mean prediction"), score_tip("observed", "mean label")]
    tips.append({"field": "rows", "type": "quantitative", "format": ",", "title": "weight of rows"})
    size = {"field": "rows", "type": "quantitative", "legend": None, "scale": {"range": [30, 300]}}
    points: Spec = {
        "mark": {"type": "point", "filled": True, "opacity": 0.9},
        "encoding": {"y": y, "size": size, "tooltip": tips},
    }
    shared = {
        "x": number("predicted", "mean prediction", **PROBABILITIES),
        "color": colours(palette([found.split]), rows),
    }
    spec = layered(rows, shared, [right, line(y), points])
    about = f"{found.num_rows:,} {found.split} rows; expected calibration error {found.error:.4f}. {OF_CALIBRATION}"
    return Plot("calibration", "Mean label against mean prediction", spec, about)
