"""What pages share: `page.html` with its style and script, boxes of charts, legends, and the data that is drawn."""

from __future__ import annotations

import json
import math
import re
import time
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cce.version import __version__
from cce_lab.report.vega import javascript

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cce_lab.report.vega import Plot, Style


def fill_page(values: Mapping[str, str], data: Mapping[str, Any]) -> str:
    """The page with these values, which are HTML, and the data that its script draws."""
    own = {
        "css": _resource("page.css"),
        "about": escape(f"cce {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"),
        "data": _json(data),
        "vega": javascript(),
        "script": _resource("page.js"),
    }
    found = {**values, **own}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: found[match[1]], _resource("page.html"))


def part(title: str, html: str) -> str:
    """HTML under a heading."""
    return f"<h3>{escape(title)}</h3>\n{html}"


def html_list(lines: Sequence[str]) -> str:
    """Lines of text as a list; nothing without any."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def figure_box(plot: Plot, *, is_broad: bool = False, is_hidden: bool = False) -> str:
    """The box that the script draws a chart in."""
    chosen_by = f'data-metric="{escape(plot.metric)}" data-size="{plot.size}"{" hidden" if is_hidden else ""}'
    return (
        f'<figure class="plot{" broad" if is_broad else ""}" data-plot="{escape(plot.name)}" '
        f"{chosen_by}><figcaption><b>{escape(plot.title)}</b> "
        f'<span class="quiet">{escape(plot.about)}</span></figcaption>'
        f'<div class="canvas" role="img" aria-label="{escape(plot.title)}"></div></figure>'
    )


def legend(styles: Mapping[str, Style]) -> str:
    """A button for each series, which the script colours and wires."""
    buttons = "".join(_button(name, style) for name, style in styles.items())
    return f'<div class="legend" role="group" aria-label="Highlight series">{buttons}</div>' if styles else ""


def _button(name: str, style: Style) -> str:
    mark = f'<i class="{style.shape}" style="background:{style.colour}"></i>'
    return f'<button type="button" aria-pressed="false" data-series="{escape(name)}">{mark}{escape(name)}</button>'


def plot_data(section: str, plots: Sequence[Plot]) -> dict[str, Any]:
    """What the script needs of a section; charts that share their rows, such as curves, have them once."""
    found: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    indices: dict[int, int] = {}
    for plot in plots:
        values = plot.spec["data"]["values"]
        if id(values) not in indices:
            indices[id(values)] = len(rows)
            rows.append(pack(values))
        spec = {name: value for name, value in plot.spec.items() if name != "data"}
        found[plot.name] = {"spec": spec, "rows": indices[id(values)], "budgets": plot.has_budgets}
    return {"id": section, "plots": found, "rows": rows}


def pack(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of values; a column of words is a list of the distinct ones and indices into it. `page.js` unpacks."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"count": len(rows), "columns": {name: _column([row.get(name) for row in rows]) for name in names}}


def _column(values: list[Any]) -> Any:
    if any(isinstance(value, str) for value in values):
        words = list(dict.fromkeys(values))
        indices = {word: index for index, word in enumerate(words)}
        return {"words": words, "at": [indices[value] for value in values]}
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]


def _json(value: Any) -> str:
    """JSON that may stand inside a `script` element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _resource(name: str) -> str:
    return files("cce_lab.report").joinpath(name).read_text(encoding="utf-8")
