"""Pieces of charts in Vega-Lite's language: plain dictionaries. Nothing here needs altair or a browser.

The page sets two names: `highlight`, the series chosen in its legend, and `budget`, the one chosen in its list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cce.report.palette import Style

Spec = dict[str, Any]
HEIGHT = 300
GREY = "#8a8f98"
STEPS: Spec = {"format": "~s", "tickCount": 6, "grid": False}
FORMATS = {"size": ",.0f", "step": ","}
SCORES = ("mean", "least", "greatest", "bce", "auc")


@dataclass(frozen=True)
class Plot:
    """One chart of a page."""

    name: str
    title: str
    spec: Spec
    about: str = ""
    has_budgets: bool = False  # shows one budget at a time


def layered(rows: Sequence[Spec], shared: Spec, layers: Sequence[Spec]) -> Spec:
    """A chart of these layers, as wide as what holds it."""
    return {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": list(rows)},
        "params": [{"name": "highlight", "value": []}],
        "encoding": shared,
        "layer": list(layers),
    }


def by_budget(spec: Spec) -> Spec:
    """The same chart of one budget at a time; full tables have none and are always shown."""
    chosen = {"name": "budget", "value": middle_budget(spec["data"]["values"])}
    shown = {"filter": "datum.budget == budget || datum.series == 'full'"}
    return spec | {"params": [*spec["params"], chosen], "transform": [shown]}


def middle_budget(rows: Sequence[Spec]) -> str:
    """The budget that is shown first: the middle one, which most series have."""
    labels = list(dict.fromkeys(row["budget"] for row in rows if row["series"] != "full"))
    return labels[len(labels) // 2] if labels else ""


def number(field: str, title: str, **options: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **options}


def near(field: str, title: str) -> Spec:
    """The same for scores: the axis begins near the least of them."""
    return number(field, title, scale={"zero": False, "padding": 8})


def log_sizes(rows: Sequence[Spec], fields: Sequence[str], unit: str) -> Spec:
    """Scale and axis of sizes: logarithmic, with round numbers, as many as fit."""
    sizes = [row[field] for row in rows for field in fields if row.get(field)]
    values = round_numbers(min(sizes), max(sizes)) if sizes else []
    axis = {"labelExpr": f"format(datum.value, '~s') + '{unit}'", "labelOverlap": True, "values": values, "grid": False}
    return {"scale": {"type": "log", "nice": False, "padding": 14}, "axis": axis}


def round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten between two sizes; twos and fives, or threes, as well where there are few of them."""
    decades = math.log10(high / low)
    digits = (1, 2, 5) if decades < 2.5 else (1, 3) if decades < 4 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]


def band(channel: Spec, kind: str, opacity: float) -> Spec:
    """From the least to the greatest: an area, or a rule where there is but one point."""
    ends = {"y": channel | {"field": "least"}, "y2": {"field": "greatest"}, "opacity": bright(opacity)}
    return {"mark": {"type": kind, "strokeWidth": 2}, "encoding": ends}


def line(channel: Spec, **channels: Spec) -> Spec:
    """A line of each series."""
    mark = {"type": "line", "strokeWidth": 2}
    return {"mark": mark, "encoding": {"y": channel, "opacity": bright(1.0), **channels}}


def dots(channel: Spec, styles: Mapping[str, Style], tips: Sequence[str], *, size: int = 70) -> Spec:
    """A point of each series' own shape, with what it says when it is pointed at."""
    scale = {"domain": list(styles), "range": [style.shape for style in styles.values()]}
    shape = {"field": "series", "type": "nominal", "scale": scale, "legend": None}
    encoding = {"y": channel, "shape": shape, "opacity": bright(1.0), "tooltip": [tip(name) for name in tips]}
    return {"mark": {"type": "point", "filled": True, "size": size}, "encoding": encoding}


def level(height: float, text: str) -> list[Spec]:
    """A dashed line all across, with its name."""
    data = {"values": [{"level": height, "text": text}]}
    y = {"field": "level", "type": "quantitative"}
    words = {"type": "text", "align": "right", "baseline": "bottom", "dx": -28, "dy": -3, "fontSize": 11}
    rule = {"x": None, "y": y, "color": {"value": GREY}}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [6, 4]}, "encoding": rule},
        {"data": data, "mark": words, "encoding": rule | {"x": {"value": "width"}, "text": {"field": "text"}}},
    ]


def colours(styles: Mapping[str, Style], rows: Sequence[Spec]) -> Spec:
    """The colour of each series, and a legend, which the page takes away as it has its own."""
    names = list(dict.fromkeys(row["series"] for row in rows))
    scale = {"domain": names, "range": [styles[name].colour for name in names]}
    legend = {"title": None, "symbolType": "circle", "symbolOpacity": 1, "labelLimit": 240}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": legend}


def bright(value: float) -> Spec:
    """The opacity of what is highlighted; the rest fades."""
    test = "!length(highlight) || indexof(highlight, datum.series) >= 0"
    return {"condition": {"test": test, "value": value}, "value": min(0.08, value)}


def tip(name: str) -> Spec:
    """A line of a tooltip: words as they are, counts with commas, scores with five digits."""
    field = "size" if name in ("params", "bytes") else name
    form = ".5f" if name in SCORES else FORMATS.get(field)
    if form is None:
        return {"field": field, "type": "nominal", "title": name}
    return {"field": field, "type": "quantitative", "format": form, "title": name}
