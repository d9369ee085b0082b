"""The page of a report, one HTML file that needs no network; and what it shares with the page of a run."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cce.training import TrainConfig
from cce.version import __version__
from cce_lab.report.groups import WORDS
from cce_lab.report.tables import environment_table
from cce_lab.report.vega import Plot, Style, javascript

if TYPE_CHECKING:
    from cce_lab.report.groups import Collected
    from cce_lab.report.writing import Section


def make_page(found: Collected, sections: Sequence[Section]) -> str:
    names = list(dict.fromkeys(section.group.key[0] for section in sections))
    notes = "".join(f"<li>{escape(line)}</li>" for line in found.notes)
    return fill_page(
        title=f"cce report: {', '.join(names)}",
        progress=f"{len(found.records)} run{'' if len(found.records) == 1 else 's'}",
        links={section.group.slug: section.group.title for section in sections},
        sections="\n".join(_section(section) for section in sections),
        notes=f"<ul>{notes}</ul>" if notes else "",
        environment=environment_table(found.records).as_html(),
        commands=_commands(found),
        charts={section.group.slug: section.plots for section in sections},
    )


def _section(section: Section) -> str:
    group, factors = section.group, section.tables["factors"]
    used = {row["series"] for plot in section.plots for row in plot.spec["data"]["values"]}
    parts = [
        f'<p class="headline">{escape(section.headline)}</p>',
        f'<p class="caution">{escape(section.caution)}</p>' if section.caution else "",
        legend({name: style for name, style in section.styles.items() if name in used}),
        _expectation(section),
        f"<h3>Compression factors</h3>\n{factors.as_html()}" if group.baseline and factors.rows else "",
        _choices(section),
        _figures(section.plots, group.leading.name),
        f"<h3>Summary</h3>\n{section.tables['summary'].as_html()}",
    ]
    return section_box(group.slug, group.title, "\n".join(part for part in parts if part))


def _expectation(section: Section) -> str:
    """Where the expected values come from, and the baseline that they go with."""
    if not section.expected:
        return ""
    words = [f"Expected: {section.expected.get('source', 'by the recipe')}."]
    leading, found = section.group.leading, section.group.baseline_score
    wanted = section.expected.get(f"full_{leading.name}")
    if isinstance(wanted, int | float):
        here = "" if found is None else f", here {leading.format(found)}"
        words.append(f"Full table there: {leading.title} {leading.format(wanted)}{here}.")
    return f'<p class="quiet">{escape(" ".join(words))}</p>'


def _figures(plots: Sequence[Plot], leading: str) -> str:
    """A box for each chart; those of metrics and sizes other than the first are hidden until they are chosen."""
    first = next((plot.size for plot in plots if plot.size), "")
    boxes = [
        figure_box(plot, is_broad=True, is_hidden=plot.metric not in ("", leading) or plot.size not in ("", first))
        for plot in plots
    ]
    return f'<div class="plots">{"".join(boxes)}</div>' if plots else ""


def _choices(section: Section) -> str:
    """The lists of metrics and of sizes to choose from, what leads first; none where there is but one."""
    metrics, sizes = {plot.metric for plot in section.plots}, {plot.size for plot in section.plots}
    of_metrics = {info.name: info.title for info in section.group.metrics if info.name in metrics}
    of_sizes = {name: word for name, word in WORDS.items() if name in sizes}
    found = []
    for title, name, choices in (("Metric", "metric", of_metrics), ("Against", "size", of_sizes)):
        options = "".join(f'<option value="{escape(key)}">{escape(words)}</option>' for key, words in choices.items())
        if len(choices) > 1:
            found.append(f'<label>{title} <select class="{name}">{options}</select></label>')
    return f"<p>{' '.join(found)}</p>" if found else ""


def _commands(found: Collected) -> str:
    """How to make the runs again: the recipes, and the options of each run."""
    sweeps = "\n".join(shlex.join(["cce", "sweep", path]) for path in found.recipes)
    blocks = [f"<pre>{escape(sweeps)}</pre>"] if sweeps else []
    runs = list(dict.fromkeys(given_options(record.config) for record in found.records if record.config))
    texts = {f"options of {len(runs)} run{'' if len(runs) == 1 else 's'}": "\n".join(runs)} if runs else {}
    for title, text in (texts | found.recipes).items():
        is_open = " open" if len(runs) < 4 and title in texts else ""
        blocks.append(f"<details{is_open}><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>")
    return "\n".join(blocks)


def given_options(config: Mapping[str, Any]) -> str:
    """The options of a run that differ from the defaults, as one line of JSON."""
    defaults = asdict(TrainConfig(data="", preset=config.get("preset") or "tuned"))
    return json.dumps({name: value for name, value in config.items() if value != defaults.get(name)})


# -- shared with the page of a run -------------------------------------------------------------------------------------


def fill_page(
    *, title: str, progress: str, links: Mapping[str, str], charts: Mapping[str, Sequence[Plot]], **parts: str
) -> str:
    """`page.html` with these words, links to its sections, parts, which are HTML, and the charts of each section."""
    data = [{"id": name, "plots": {plot.name: plot.spec for plot in plots}} for name, plots in charts.items()]
    home = files("cce_lab.report")
    anchors = [f'<a href="#{name}">{escape(words)}</a>' for name, words in links.items()]
    found = {
        **parts,
        "title": escape(title),
        "progress": escape(progress),
        "navigation": f"<nav>{' '.join(anchors)}</nav>" if len(anchors) > 1 else "",
        "css": home.joinpath("page.css").read_text(encoding="utf-8"),
        "about": escape(f"cce {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"),
        # safe inside a `script` element
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "vega": javascript(),
        "script": home.joinpath("page.js").read_text(encoding="utf-8"),
    }
    template = home.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: found[match[1]], template)


def section_box(name: str, title: str, html: str) -> str:
    return f'<section id="{name}" class="group"><h2>{escape(title)}</h2>\n{html}\n</section>'


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
    buttons = "".join(
        f'<button type="button" aria-pressed="false" data-series="{escape(name)}">'
        f'<i class="{style.shape}" style="background:{style.colour}"></i>{escape(name)}</button>'
        for name, style in styles.items()
    )
    return f'<div class="legend" role="group" aria-label="Highlight series">{buttons}</div>' if styles else ""
