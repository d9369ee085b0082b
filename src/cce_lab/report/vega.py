"""Charts in Vega-Lite's language: their pieces as plain dictionaries, their colours, the script and the pictures.

A page sets `highlight`, the series chosen in its legend. A series has one colour and one shape in all charts of a page.
This is the only file that imports vl-convert.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import count
from typing import Any

from cce.text import install_hint

HINT = f"it needs vl-convert-python: {install_hint('report')}"
WIDTH = 620
Spec = dict[str, Any]
HEIGHT = 300
GREY = "#8a8f98"
SCORE_TICKS = ".4~f"  # 0.5435 stays so where it is the only one; 0.5 is not 0.5000
NARROW = 4.0  # an axis of sizes spans at least this many times
STEPS: Spec = {"format": "~s", "tickCount": 6, "grid": False}
SCORE = ".5f"  # in tooltips
THEME: dict[str, Any] = {
    "background": "white",
    "padding": 12,
    "font": "system-ui, sans-serif",
    "axis": {"labelFontSize": 11, "titleFontSize": 12, "gridColor": "#e6e8eb", "domainColor": "#9aa0a8"},
    "title": {"fontSize": 14, "anchor": "start"},
    "view": {"stroke": None},
}
# Five of the first eight hues are Okabe and Ito's, made for all kinds of colour vision; the blue is lighter, to show on
# black, and violet and olive are our own. Nine more serve those who have more series; shapes differ as well.
HUES = (
    *("#d55e00", "#2a7fc1", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9a6fc4", "#8f8f2f"),
    *("#2fb5b5", "#e0457b", "#8a5a34", "#5b6fe0", "#6fae3a", "#b0413e", "#5c7a99", "#b59f7b"),
    "#a03fa8",
)
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
FIXED = (  # the i-th has the i-th hue
    *("cce", "hash", "ce-concat", "dhe", "robe", "pq", "hash-embedding", "tt"),
    *("ce-sum", "ce-mult", "collide", "mixed-dim", "quantized", "low-rank", "cce-paper"),
)


def can_draw() -> bool:
    return find_spec("vl_convert") is not None


@cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, without a network; safe inside a `script` element.

    It is put together once, which takes seconds.
    """
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def picture(spec: dict[str, Any], *, title: str, kind: str) -> bytes:
    """A chart as `svg` or `pdf`, with its own title and width."""
    if not can_draw():
        raise ModuleNotFoundError(f"a figure cannot be drawn: {HINT}")
    import vl_convert

    drawn = copy.deepcopy(spec) | {"title": title, "width": WIDTH, "config": THEME, "autosize": "pad"}
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(json.dumps(drawn)))
    return str(vl_convert.vegalite_to_svg(json.dumps(drawn))).encode("utf-8")


@dataclass(frozen=True)
class Plot:
    """One chart of a page."""

    name: str
    title: str
    spec: Spec
    about: str = ""
    metric: str = ""  # shown while this one is chosen; empty: always
    size: str = ""  # the same, of what its axis measures

    @property
    def num_points(self) -> int:
        """Points, without marks of clusterings."""
        return sum("marked" not in row for row in self.spec["data"]["values"])


def layered(rows: list[Spec], shared: Spec, layers: Sequence[Spec]) -> Spec:
    """A chart of these layers, as wide as what holds it."""
    return {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        "params": [{"name": "highlight", "value": []}],
        "encoding": shared,
        "layer": list(layers),
    }


def number(field: str, title: str, **options: Any) -> Spec:
    """A numeric channel."""
    return {"field": field, "type": "quantitative", "title": title, **options}


def near(field: str, title: str) -> Spec:
    """The same for scores: the axis begins near the least of them."""
    return number(field, title, scale={"zero": False, "padding": 8}, axis={"format": SCORE_TICKS, "tickCount": 6})


def log_sizes(rows: Sequence[Spec], unit: str) -> Spec:
    """Scale and axis of sizes: logarithmic, and at least `NARROW` times wide, so that it has more than one number."""
    sizes = [row["size"] for row in rows] or [1.0]
    low, high = min(sizes), max(sizes)
    if high / low < NARROW:
        middle, half = math.sqrt(low * high), math.sqrt(NARROW)
        low, high = middle / half, middle * half
    axis = {"labelExpr": f"format(datum.value, '~s') + '{unit}'", "labelOverlap": True, "grid": False}
    axis["values"] = round_numbers(low, high)
    return {"scale": {"type": "log", "nice": False, "padding": 14, "domain": [low, high]}, "axis": axis}


def round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten between two sizes; twos and fives, or threes, as well where they are few, or still more."""
    decades = math.log10(high / low)
    digits = (1, 1.5, 2, 3, 5, 7) if decades < 1 else (1, 2, 5) if decades < 2.5 else (1, 3) if decades < 4 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]


def band(channel: Spec, kind: str, opacity: float) -> Spec:
    """From the least to the greatest: an area, or a rule if there is only one point."""
    ends = {"y": channel | {"field": "least"}, "y2": {"field": "greatest"}, "opacity": bright(opacity)}
    return {"mark": {"type": kind, "strokeWidth": 2}, "encoding": ends}


def line(channel: Spec, **channels: Spec) -> Spec:
    mark = {"type": "line", "strokeWidth": 2}
    return {"mark": mark, "encoding": {"y": channel, "opacity": bright(1.0), **channels}}


def dots(channel: Spec, styles: Mapping[str, Style], tips: Sequence[Spec], *, size: int = 70) -> Spec:
    """A point of each series' own shape, with what it says when it is pointed at."""
    scale = {"domain": list(styles), "range": [style.shape for style in styles.values()]}
    shape = {"field": "series", "type": "nominal", "scale": scale, "legend": None}
    encoding = {"y": channel, "shape": shape, "opacity": bright(1.0), "tooltip": list(tips)}
    return {"mark": {"type": "point", "filled": True, "size": size}, "encoding": encoding}


def level(height: float, text: str) -> list[Spec]:
    """A dashed line all across, with its name."""
    data = {"values": [{"level": height, "text": text}]}
    y = {"field": "level", "type": "quantitative"}
    words = {"type": "text", "align": "left", "baseline": "bottom", "dx": 6, "dy": -3, "fontSize": 11}
    rule = {"x": None, "y": y, "color": {"value": GREY}}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [6, 4]}, "encoding": rule},
        {"data": data, "mark": words, "encoding": rule | {"x": {"value": 0}, "text": {"field": "text"}}},
    ]


def colours(styles: Mapping[str, Style], rows: Sequence[Spec]) -> Spec:
    """The colour of each series, and a legend, which the page takes away as it has its own."""
    names = list(dict.fromkeys(row["series"] for row in rows))
    scale = {"domain": names, "range": [styles[name].colour for name in names]}
    legend = {"title": None, "symbolType": "circle", "symbolOpacity": 1, "labelLimit": 300}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": legend}


def bright(value: float) -> Spec:
    """The opacity of what is highlighted; the rest fades."""
    test = "!length(highlight) || indexof(highlight, datum.series) >= 0"
    return {"condition": {"test": test, "value": value}, "value": min(0.08, value)}


def tip(field: str, title: str = "", form: str = "") -> Spec:
    """A line of a tooltip: words as they are, numbers in a format."""
    kind = {"type": "quantitative", "format": form} if form else {"type": "nominal"}
    return {"field": field, "title": title or field, **kind}


@dataclass(frozen=True)
class Style:
    """How a series is drawn."""

    colour: str
    shape: str


def palette(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name, by its rank: the usual methods have fixed hues."""
    wanted = sorted(set(names))
    styles = {name: _style(index) for index, name in enumerate(FIXED) if name in wanted}
    if "full" in wanted:
        styles["full"] = Style(GREY, "square")
    free = (index for index in count() if index >= len(FIXED) or FIXED[index] not in wanted)
    return styles | {name: _style(next(free)) for name in wanted if name not in styles}


def _style(index: int) -> Style:
    """Seventeen hues and seven shapes: 119 styles before a pair repeats."""
    return Style(HUES[index % len(HUES)], SHAPES[index % len(SHAPES)])
