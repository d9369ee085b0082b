"""The chart of compression factors: how many times fewer params and bytes each series needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.report.compression_factor import Kind
from cce.report.factor_table import expected_value
from cce.report.groups import FULL
from cce.report.specs import GREY, Plot, bright, colours, layered, log_sizes, number, tip
from cce.text import format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.report.groups import Group
    from cce.report.palette import Style
    from cce.report.specs import Spec

OF = ("params", "bytes")
ABOUT = "Of all tables. A bar is the range over seeds, or of an extrapolation. What needs more than full is not shown."
TICKS = "A grey tick is what the recipe expects of params."


def factor_plot(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> Plot:
    """Two points for each series that may need less than the full table."""
    rows = [row for name in group.series if name != FULL for of in OF for row in _rows(group, name, of, expected)]
    order = list(dict.fromkeys(row["series"] for row in sorted(rows, key=lambda row: -row["factor"])))
    sizes = log_sizes(rows, ("factor", "low", "high", "wanted"), "×")
    x = number("factor", "times fewer than the full table, at its BCE", **sizes)
    shared = {
        "y": {"field": "series", "type": "nominal", "title": None, "sort": order, "axis": {"labelLimit": 160}},
        "yOffset": {"field": "of", "type": "nominal", "sort": list(OF)},
        "color": colours(styles, rows) | {"legend": None},
        "tooltip": [tip(name) for name in ("series", "of", "says", "expected", "how")],
    }
    spec = layered(rows, shared, [*_layers(x), *_wishes(x, rows)]) | {"height": 48 * max(len(order), 1)}
    about = f"{ABOUT} {TICKS}" if any("wanted" in row for row in rows) else ABOUT
    return Plot("factors", "Compression factors", spec, about)


def _layers(x: Spec) -> list[Spec]:
    legend = {"title": None, "orient": "top", "symbolFillColor": GREY, "symbolStrokeColor": GREY}
    scale = {"domain": list(OF), "range": ["circle", "square"]}
    shape = {"field": "of", "type": "nominal", "scale": scale, "legend": legend}
    words = {"type": "text", "align": "left", "dx": 10, "fontSize": 11}
    ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "opacity": bright(0.35)}
    return [
        {"mark": {"type": "rule", "strokeWidth": 6}, "encoding": ends},
        {
            "mark": {"type": "point", "filled": True, "size": 110},
            "encoding": {"x": x, "shape": shape, "opacity": bright(1.0)},
        },
        {"mark": words, "encoding": {"x": x | {"field": "high"}, "text": {"field": "says"}, "opacity": bright(1.0)}},
    ]


def _wishes(x: Spec, rows: list[dict[str, Any]]) -> list[Spec]:
    """A tick at what was expected, if anything was."""
    if not any("wanted" in row for row in rows):
        return []
    encoding = {"x": x | {"field": "wanted"}, "color": {"value": GREY}}
    mark = {"type": "tick", "thickness": 3, "size": 18}
    return [{"transform": [{"filter": "isValid(datum.wanted)"}], "mark": mark, "encoding": encoding}]


def _rows(group: Group, name: str, of: str, expected: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row; none for what needs more than the full table, or of which nothing is known."""
    factor = group.factor(name, of)
    if factor.value is None or factor.high is None or factor.high < 1:
        return []
    table = expected.get("compression")
    wanted = expected_value(table.get(name)) if isinstance(table, dict) and of == "params" else None
    low, high = factor.low or factor.high, factor.high
    if factor.seeds is not None and factor.kind is Kind.MEASURED:
        low, high = min(factor.seeds.least, low), max(factor.seeds.greatest, high)
    sizes = {"factor": max(factor.value, 1.0), "low": max(low, 1.0), "high": high}
    words = {"says": str(factor), "expected": "–" if wanted is None else format_ratio(wanted), "how": str(factor.kind)}
    return [{"series": name, "of": of, **sizes, **words, **({} if wanted is None else {"wanted": wanted})}]
