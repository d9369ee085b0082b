"""Charts as data: Vega-Lite specifications in plain dictionaries, which the page and the pictures are both drawn from.

A chart is data before it is a picture: nothing here needs altair or a browser. The page sets two names: `highlight`,
the series that are chosen in its legend, and `budget`, the budget that is chosen in its list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cce.report.compression_factor import Kind
from cce.report.curves import curve_rows, event_rows
from cce.report.factor_table import expected_value
from cce.report.groups import FULL
from cce.text import format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cce.report.groups import Group
    from cce.report.palette import Style
    from cce.report.statistics import Spread

Spec = dict[str, Any]
HEIGHT = 300
BRIGHT = {"test": "!length(highlight) || indexof(highlight, datum.series) >= 0"}
STEPS = {"format": "~s", "tickCount": 6, "grid": False}
TITLES = {"bce": "test BCE", "auc": "test AUC", "params": "params of all tables", "bytes": "bytes of all tables"}


@dataclass(frozen=True)
class Plot:
    """One chart of a page."""

    name: str
    title: str
    spec: Spec
    about: str = ""
    has_budgets: bool = False  # shows one budget at a time


def plots_of(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> list[Plot]:
    """The charts of a group; those that would be empty are left out."""
    plots = []
    if group.budgets:
        plots = [score_plot(group, styles, score, size) for score in ("bce", "auc") for size in ("params", "bytes")]
        plots.insert(0, factor_plot(group, styles, expected))
    plots += [curve_plot(group, styles), *(event_plot(group, styles, name) for name in ("churn", "H1", "H2"))]
    return [plot for plot in plots if plot.spec["data"]["values"]]


# -- scores against sizes ----------------------------------------------------------------------------------------------


def score_plot(group: Group, styles: Mapping[str, Style], score: str, size: str) -> Plot:
    """A score against a size: a line for each series, the band from least to greatest, the full table dashed."""
    rows = [row for budget in group.budgets if (row := _score_row(budget, score, size)) is not None]
    x = {
        "field": "size",
        "type": "quantitative",
        "title": TITLES[size],
        "scale": _log(),
        "axis": _sizes(rows, "size", "B" if size == "bytes" else ""),
    }
    y = {"field": "mean", "type": "quantitative", "title": TITLES[score], "scale": {"zero": False, "padding": 8}}
    layers: list[Spec] = [
        {
            "mark": {"type": "area", "opacity": 0.18},
            "encoding": {"y": {**y, "field": "least"}, "y2": {"field": "greatest"}},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5},
            "encoding": {"y": {**y, "field": "least"}, "y2": {"field": "greatest"}},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y, "opacity": _bright(1.0)}},
        _dots(y, styles, ("series", "budget", size, "fewer", "mean", "least", "greatest", "seeds")),
    ]
    for layer in layers[:2]:
        layer["encoding"]["opacity"] = _bright(0.2 if layer["mark"]["type"] == "area" else 0.6)
    level = group.baseline.over_seeds(score) if group.baseline else None
    layers += _rule(level, f"full table {level.mean:.4f}" if level else "")
    spec = _spec(rows, {"x": x, "color": _colours(styles, rows)}, layers)
    title = f"{score.upper()} against {size}"
    return Plot(f"{score}-{size}", title, spec, "Mean over seeds; the band goes from the least to the greatest.")


def _score_row(budget: Any, score: str, size: str) -> dict[str, Any] | None:
    found: Spread | None = budget.over_seeds(score)
    if found is None:
        return None
    row = {"series": budget.series, "budget": budget.label, "size": budget.size(size), "seeds": found.count}
    scores = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
    return row | {name: round(value, 6) for name, value in scores.items()}


# -- compression factors -----------------------------------------------------------------------------------------------


def factor_plot(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> Plot:
    """How many times fewer params and bytes each series needs; ranges are extrapolated; ticks are what was expected."""
    rows = []
    for name in group.series:
        for measure in ("params", "bytes"):
            rows += _factor_row(group, name, measure, expected)
    order = list(dict.fromkeys(row["series"] for row in sorted(rows, key=lambda row: -row["factor"])))
    x = {
        "field": "factor",
        "type": "quantitative",
        "title": "times fewer than the full table, at its BCE",
        "scale": _log(),
        "axis": _sizes(rows, "factor", "×"),
    }
    y = {"field": "series", "type": "nominal", "title": None, "sort": order, "axis": {"labelLimit": 160}}
    offset = {"field": "of", "type": "nominal", "sort": ["params", "bytes"]}
    tooltip = [_tip(name) for name in ("series", "of", "says", "expected", "how")]
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 6, "opacity": 0.35},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110},
            "encoding": {
                "x": x,
                "shape": {
                    "field": "of",
                    "type": "nominal",
                    "scale": {"domain": ["params", "bytes"], "range": ["circle", "square"]},
                    "legend": {
                        "title": None,
                        "orient": "top",
                        "symbolFillColor": "#8a8f98",
                        "symbolStrokeColor": "#8a8f98",
                    },
                },
                "opacity": _bright(1.0),
            },
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 10, "fontSize": 11},
            "encoding": {"x": x, "text": {"field": "says"}},
        },
        {
            "transform": [{"filter": "isValid(datum.wanted)"}],
            "mark": {"type": "tick", "thickness": 3, "size": 18},
            "encoding": {"x": {**x, "field": "wanted"}, "color": {"value": "#8a8f98"}},
        },
    ]
    spec = _spec(
        rows, {"y": y, "yOffset": offset, "color": _colours(styles, rows, legend=False), "tooltip": tooltip}, layers
    )
    spec["height"] = 48 * max(len(order), 1)
    about = "Circles: params, squares: bytes, of all tables. A grey tick is what the recipe expects of params."
    return Plot("factors", "Compression factors", spec, about)


def _factor_row(group: Group, name: str, measure: str, expected: Mapping[str, Any]) -> list[dict[str, Any]]:
    if name == FULL:
        return []
    factor = group.factor(name, measure)
    if factor.value is None or factor.high is None or factor.value <= 0:
        return []
    wanted = expected_value(expected.get("compression", {}).get(name)) if measure == "params" else None
    low, high = factor.low or factor.high, factor.high
    if high < 1:
        return []  # it needs more than the full table
    if factor.seeds is not None and factor.kind is Kind.MEASURED:
        low, high = factor.seeds.least, factor.seeds.greatest
    facts = {
        "series": name,
        "of": measure,
        "factor": max(factor.value, 1.0),
        "low": max(low, 1.0),
        "high": high,
        "says": str(factor),
    }
    known = {} if wanted is None else {"wanted": wanted}
    return [{**facts, "expected": "–" if wanted is None else format_ratio(wanted), "how": str(factor.kind), **known}]


# -- training ----------------------------------------------------------------------------------------------------------


def curve_plot(group: Group, styles: Mapping[str, Style]) -> Plot:
    """Validations of one run of each series under the chosen budget; its clusterings are marked on it."""
    rows = curve_rows(group)
    x = {"field": "step", "type": "quantitative", "title": "step", "axis": STEPS}
    y = {"field": "bce", "type": "quantitative", "title": "validation BCE", "scale": {"zero": False}}
    tips = [_tip(name) for name in ("series", "budget", "step", "bce", "auc", "epoch")]
    detail = {"detail": {"field": "run", "type": "nominal"}, "opacity": _bright(1.0)}
    scored, marked = {"filter": "isValid(datum.bce)"}, {"filter": "isValid(datum.clustered)"}
    layers: list[Spec] = [
        {
            "transform": [marked],
            "mark": {"type": "rule", "strokeDash": [2, 3], "opacity": 0.6},
            "encoding": {"tooltip": [_tip("series"), _tip("budget"), _tip("step"), _tip("clustered")]},
        },
        {
            "transform": [scored],
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {
                "y": y,
                **detail,
                "strokeDash": {
                    "field": "live",
                    "type": "nominal",
                    "legend": None,
                    "scale": {"domain": [0, 1], "range": [[1, 0], [6, 3]]},
                },
            },
        },
        {
            "transform": [scored],
            "mark": {"type": "point", "filled": True, "size": 28},
            "encoding": {"y": y, "opacity": _bright(1.0), "tooltip": tips},
        },
    ]
    spec = _spec(rows, {"x": x, "color": _colours(styles, rows)}, layers, by_budget=True)
    about = "One run of each series, that of the lowest seed. Dotted: clusterings. Dashed: runs that are not finished."
    return Plot("curves", "Training curves", spec, about, has_budgets=True)


WORDS = {"churn": "churn", "H1": "H1 (nats)", "H2": "H2 (nats)"}
ABOUT = {
    "churn": "The share of ids whose pointer changed.",
    "H1": "The entropy of single columns of pointers: low if few rows are used.",
    "H2": "The entropy of pairs of columns: near H1 if columns say the same (table collapse).",
}


def event_plot(group: Group, styles: Mapping[str, Style], name: str) -> Plot:
    """A fact of every clustering: the mean over tables, and the band from the least to the greatest."""
    rows = event_rows(group, name)
    x = {"field": "step", "type": "quantitative", "title": "step", "axis": STEPS}
    y = {"field": "mean", "type": "quantitative", "title": WORDS[name], "scale": {"zero": False, "padding": 8}}
    tips = ("series", "budget", "step", "mean", "least", "greatest", "tables")
    layers: list[Spec] = [
        {
            "mark": {"type": "area"},
            "encoding": {"y": {**y, "field": "least"}, "y2": {"field": "greatest"}, "opacity": _bright(0.15)},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y, "opacity": _bright(1.0)}},
        _dots(y, styles, tips),
    ]
    spec = _spec(rows, {"x": x, "color": _colours(styles, rows)}, layers, by_budget=True)
    spec["height"] = 200
    about = f"{ABOUT[name]} Mean over tables; the band goes from the least to the greatest."
    return Plot(name.lower(), f"{name[0].upper()}{name[1:]} at clusterings", spec, about, has_budgets=True)


# -- pieces ------------------------------------------------------------------------------------------------------------


def _spec(rows: Sequence[dict[str, Any]], shared: Spec, layers: list[Spec], *, by_budget: bool = False) -> Spec:
    spec: Spec = {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": list(rows)},
        "params": [{"name": "highlight", "value": []}],
        "encoding": shared,
        "layer": layers,
    }
    if by_budget:
        spec["params"] = [*spec["params"], {"name": "budget", "value": middle_budget(rows)}]
        spec["transform"] = [{"filter": "datum.budget == budget || datum.series == 'full'"}]
    return spec


def middle_budget(rows: Sequence[dict[str, Any]]) -> str:
    """The budget that is shown first: the middle one, which most series have."""
    labels = list(dict.fromkeys(row["budget"] for row in rows if row["series"] != FULL))
    return labels[len(labels) // 2] if labels else ""


def _dots(y: Spec, styles: Mapping[str, Style], tips: Sequence[str]) -> Spec:
    shape = {"field": "series", "type": "nominal", "scale": _range(styles, "shape"), "legend": None}
    mark = {"type": "point", "filled": True, "size": 70}
    return {
        "mark": mark,
        "encoding": {"y": y, "shape": shape, "opacity": _bright(1.0), "tooltip": [_tip(name) for name in tips]},
    }


def _rule(level: Spread | None, text: str) -> list[Spec]:
    """A dashed line at the full table's score, with its name."""
    if level is None:
        return []
    data = {"values": [{"level": level.mean, "text": text}]}
    y = {"field": "level", "type": "quantitative"}
    grey = {"value": "#8a8f98"}
    rule = {"mark": {"type": "rule", "strokeDash": [6, 4]}, "encoding": {"x": None, "y": y, "color": grey}}
    mark = {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 11}
    words = {"mark": mark, "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "text"}, "color": grey}}
    return [{"data": data, **rule}, {"data": data, **words}]


def _colours(styles: Mapping[str, Style], rows: Sequence[dict[str, Any]], *, legend: bool = True) -> Spec:
    names = list(dict.fromkeys(row["series"] for row in rows))
    scale = {"domain": names, "range": [styles[name].colour for name in names]}
    shown = {"title": None, "symbolType": "circle", "symbolOpacity": 1, "labelLimit": 240} if legend else None
    return {"field": "series", "type": "nominal", "scale": scale, "legend": shown}


def _range(styles: Mapping[str, Style], what: str) -> Spec:
    return {"domain": list(styles), "range": [getattr(style, what) for style in styles.values()]}


def _bright(value: float) -> Spec:
    return {"condition": {**BRIGHT, "value": value}, "value": min(0.08, value)}


def _log() -> Spec:
    return {"type": "log", "nice": False, "padding": 14}


def _sizes(rows: Sequence[dict[str, Any]], name: str, unit: str) -> Spec:
    """A logarithmic axis with round numbers, as many as fit."""
    sizes = [row[name] for row in rows if row[name]]
    values = round_numbers(min(sizes), max(sizes)) if sizes else []
    label = f"format(datum.value, '~s') + '{unit}'"
    return {"labelExpr": label, "labelOverlap": True, "values": values, "grid": False}


def round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten between two sizes; twos and fives, or threes, as well where there are few of them."""
    decades = math.log10(high / low)
    digits = (1, 2, 5) if decades < 2.5 else (1, 3) if decades < 4 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]


def _tip(name: str) -> Spec:
    """A line of a tooltip: words as they are, counts with commas, scores with five digits."""
    if name in ("params", "bytes"):
        return {"field": "size", "type": "quantitative", "format": ",.0f", "title": name}
    if name in ("mean", "least", "greatest", "bce", "auc"):
        return {"field": name, "type": "quantitative", "format": ".5f"}
    if name == "step":
        return {"field": name, "type": "quantitative", "format": ","}
    return {"field": name, "type": "nominal"}
