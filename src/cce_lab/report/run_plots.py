"""The charts of the page of one run: scores and losses by step, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cce.evaluation import describe_metric
from cce_lab.report.factors import is_number
from cce_lab.report.plots import MOST_POINTS, file_word, score_field, thin
from cce_lab.report.vega import (
    GREY,
    STEPS,
    Plot,
    Spec,
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
MARKED = "Dotted: clusterings and refits."
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
