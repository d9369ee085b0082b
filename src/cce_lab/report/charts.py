"""Figures of theory as pictures, SVG and PNG, in Vega-Lite as the charts of reports are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cce.files import write_atomic
from cce_lab.report.vega import GREY, HEIGHT, HINT, HUES, Spec, can_draw, number, picture

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
    for line in figure.series:
        for index, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
            if figure.log_y and y <= 0:
                continue
            band = {"low": line.low[index], "high": line.high[index]} if line.low else {}
            found.append({"series": line.name, "x": x, "y": y, "is_reference": line.is_reference, **band})
    return found
