"""Vega-Lite's JavaScript, and pictures without a browser: the only file that imports vl-convert."""

from __future__ import annotations

import copy
import json
from functools import cache
from importlib.util import find_spec
from typing import Any

HINT = "it needs vl-convert-python: pip install 'clustered-embeddings[report]'"
WIDTH = 620
SCALE = 2.0  # of a PNG
THEME: dict[str, Any] = {
    "background": "white",
    "padding": 12,
    "font": "system-ui, sans-serif",
    "axis": {"labelFontSize": 11, "titleFontSize": 12, "gridColor": "#e6e8eb", "domainColor": "#9aa0a8"},
    "title": {"fontSize": 14, "anchor": "start"},
    "view": {"stroke": None},
}


def can_draw() -> bool:
    """Whether vl-convert is installed."""
    return find_spec("vl_convert") is not None


@cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, without a network; safe inside a `script` element.

    It is put together once, which takes seconds.
    """
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def picture(spec: dict[str, Any], *, title: str, kind: str) -> bytes:
    """A chart as SVG or PNG, with a title and a width of its own."""
    import vl_convert

    drawn = copy.deepcopy(spec) | {"title": title, "width": WIDTH, "config": THEME, "autosize": "pad"}
    text = json.dumps(drawn)
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(text)).encode("utf-8")
    return bytes(vl_convert.vegalite_to_png(text, scale=SCALE))
