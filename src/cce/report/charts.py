"""Figures as pictures, SVG and PNG, drawn by altair where it is installed: the only file that imports it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cce.files import replace_file
from cce.report.vega import GREY, HEIGHT, HUES, SCALE, THEME, WIDTH
from cce.text import install_hint

if TYPE_CHECKING:
    from pathlib import Path

    from cce.theory import Figure

LINE = 2  # pixels
KINDS = ("svg", "png")


def can_draw_figures() -> bool:
    """Whether altair, and vl-convert which it saves pictures with, are installed."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def draw_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png`, whole or not at all; give their paths."""
    if not can_draw_figures():
        raise ModuleNotFoundError(f"pictures need altair and vl-convert-python: {install_hint('report')}")
    marks = _bars(figure) if figure.ticks else _lines(figure)
    chart = marks.properties(width=WIDTH, height=HEIGHT, title=figure.title).configure(**THEME)
    return [_save(chart, folder / f"{figure.name}.{kind}", kind) for kind in KINDS]


def _lines(figure: Figure) -> Any:
    import altair

    colours = _colours(figure)
    base = altair.Chart(altair.Data(values=_points(figure)))
    x = altair.X("x:Q", title=figure.x_label)
    scale = altair.Scale(type="log") if figure.log_y else altair.Scale(zero=False)
    lines = base.mark_line(clip=True, strokeWidth=LINE).encode(
        x=x,
        y=altair.Y("y:Q", title=figure.y_label, scale=scale),
        color=colours,
        strokeDash=altair.StrokeDash("is_reference:N", legend=None, scale=_dashes()),
    )
    bands = (
        base.transform_filter("isValid(datum.low)")
        .mark_area(opacity=0.15, clip=True)
        .encode(x=x, y=altair.Y("low:Q", title=figure.y_label, scale=scale), y2="high:Q", color=colours)
    )
    return altair.layer(bands, lines)


def _bars(figure: Figure) -> Any:
    import altair

    points = [{**point, "tick": figure.ticks[int(point["x"])]} for point in _points(figure)]
    return (
        altair.Chart(altair.Data(values=[point for point in points if not point["is_reference"]]))
        .mark_bar()
        .encode(
            x=altair.X("tick:N", title=figure.x_label, sort=list(figure.ticks), axis=altair.Axis(labelAngle=0)),
            xOffset=altair.XOffset("series:N"),
            y=altair.Y("y:Q", title=figure.y_label),
            color=_colours(figure),
        )
    )


def _colours(figure: Figure) -> Any:
    import altair

    names = [line.name for line in figure.series if not (figure.ticks and line.is_reference)]
    legend = altair.Legend(labelLimit=300, symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=3)
    scale = altair.Scale(domain=names, range=_hues(figure, names))
    return altair.Color("series:N", title=None, sort=names, scale=scale, legend=legend)


def _hues(figure: Figure, names: list[str]) -> list[str]:
    """The hues of the report, in order; a single line to compare with is grey, as a full table is."""
    references = [line.name for line in figure.series if line.is_reference]
    others = [name for name in names if len(references) != 1 or name not in references]
    return [HUES[others.index(name) % len(HUES)] if name in others else GREY for name in names]


def _dashes() -> Any:
    import altair

    return altair.Scale(domain=[False, True], range=[[1, 0], [5, 4]])


def _points(figure: Figure) -> list[dict[str, Any]]:
    """One record for each number; what a logarithmic axis cannot show is left out."""
    found = []
    for line in figure.series:
        for index, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
            if figure.log_y and y <= 0:
                continue
            band = {"low": line.low[index], "high": line.high[index]} if line.low else {}
            found.append({"series": line.name, "x": x, "y": y, "is_reference": line.is_reference, **band})
    return found


def _save(chart: Any, path: Path, kind: str) -> Path:
    with replace_file(path) as temporary:
        chart.save(temporary, format=kind, scale_factor=SCALE if kind == "png" else 1.0)
    return path
