"""The chart of compression factors: who needs how many times less than the full table, by each measure of size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.text import format_ratio
from cce_lab.report.factors import Kind
from cce_lab.report.groups import WORDS
from cce_lab.report.tables import expected_value
from cce_lab.report.vega import GREY, Plot, bright, colours, layered, log_sizes, number, tip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce_lab.report.factors import Factor
    from cce_lab.report.groups import Group
    from cce_lab.report.vega import Spec, Style

OF = {measure: WORDS[measure] for measure in ("training", "bytes", "params")}
ABOUT = (
    "Of all tables. Filled: measured between two sizes. Hollow: a bound (≥, ≤) or an extrapolation. A bar is the range "
    "over seeds, or of an extrapolation. Words alone: the full table's score is not reached, or not with less."
)
TICKS = "A grey tick is what the recipe expects of params."
ROW = 20  # pixels of a point
Row = dict[str, Any]
HAS_POINT = {"filter": "isValid(datum.factor)"}
FILLED = {"filter": f"datum.how == '{Kind.MEASURED}'"}
HOLLOW = {"filter": f"datum.how != '{Kind.MEASURED}'"}
DOT = {"type": "point", "filled": True, "size": 90}
RING = {"type": "point", "filled": False, "size": 80, "strokeWidth": 2}
ROOM = 0.25  # of the axis, on its right, for words


def factor_plot(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> Plot:
    """A point for each series and measure, or words where there is none."""
    rows = [row for name in group.series if name != group.full_series for row in _rows(group, name, expected)]
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
    spec = layered(rows, shared, [*_layers(x), *_wishes(x, rows)]) | {"height": ROW * len(OF) * max(len(order), 1)}
    about = f"{ABOUT} {TICKS}" if any("wanted" in row for row in rows) else ABOUT
    return Plot("factors", "Compression factors", spec, about)


def _layers(x: Spec) -> list[Spec]:
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


def _wishes(x: Spec, rows: list[Row]) -> list[Spec]:
    """A tick at what was expected, if anything was."""
    if not any("wanted" in row for row in rows):
        return []
    encoding = {"x": x | {"field": "wanted"}, "color": {"value": GREY}}
    mark = {"type": "tick", "thickness": 3, "size": 18}
    return [{"transform": [{"filter": "isValid(datum.wanted)"}], "mark": mark, "encoding": encoding}]


def _rows(group: Group, name: str, expected: Mapping[str, Any]) -> list[Row]:
    """The rows of a series by each measure; a single one, in words, if none of them has a point; none without a full
    table to compare with.
    """
    if group.baseline_score is None:
        return []
    rows = {of: _row(name, of, group.factor(name, of), expected) for of in OF}
    return list(rows.values()) if any("factor" in row for row in rows.values()) else [rows[group.lead]]


def _row(name: str, of: str, factor: Factor, expected: Mapping[str, Any]) -> Row:
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
