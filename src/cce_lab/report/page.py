"""The page of a report: one HTML file that needs no network."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any

from cce.training import TrainConfig
from cce_lab.report.groups import MEASURES, WORDS
from cce_lab.report.overview import overview_table
from cce_lab.report.tables import environment_table, live_table
from cce_lab.report.template import figure_box, fill_page, html_list, legend, pack, part, plot_data
from cce_lab.report.vega import middle_budget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cce_lab.report.groups import Group
    from cce_lab.report.reading import Collected
    from cce_lab.report.sections import Section
    from cce_lab.report.vega import Plot

KEPT = (  # of a line of the ledger
    *("name", "method", "num_embeddings", "num_params", "codebook_nbytes", "pointer_nbytes", "gradient_nbytes"),
    *("optimizer_nbytes", "codes_nbytes", "clustering_nbytes", "full_params", "full_nbytes"),
)


def make_page(found: Collected, sections: Sequence[Section], *, reload_seconds: float | None = None) -> str:
    """The whole page; with `reload_seconds` it reloads itself at this interval and keeps its scroll position."""
    values = {
        "title": escape(_title(sections)),
        "progress": escape(progress_text(found)),
        "is_live": "live" if reload_seconds is not None else "",
        "navigation": _navigation(sections),
        "overview": _overview(sections),
        "sections": "\n".join(_section(section) for section in sections),
        "notes": html_list(found.notes),
        "environment": environment_table(found.records).as_html(),
        "commands": _commands(found),
    }
    return fill_page(values, {"reload": reload_seconds, "sections": [_data(section) for section in sections]})


def progress_text(found: Collected) -> str:
    """`12 of 14 runs finished, 2 under way`."""
    done = len(found.records)
    if found.is_finished and not found.live:
        return f"{done} run{'' if done == 1 else 's'}"
    total = max(found.num_runs, found.num_planned)
    words = [f"{done} of {'up to ' if found.num_planned > found.num_runs else ''}{total} runs finished"]
    failed = sum(bool(run.failure) for run in found.live)
    silent = len(found.live) - failed - found.num_running
    for count, word in ((found.num_running, "under way"), (silent, "silent"), (failed, "failed")):
        words += [f"{count} {word}"] if count else []
    return ", ".join(words)


def _title(sections: Sequence[Section]) -> str:
    names = list(dict.fromkeys(section.group.key[0] for section in sections))
    return f"cce report: {', '.join(names)}"


def _navigation(sections: Sequence[Section]) -> str:
    links = [f'<a href="#{section.group.slug}">{escape(section.group.title)}</a>' for section in sections]
    links.append('<a href="#overview">Overview</a>')
    return f"<nav>{' '.join(links)}</nav>" if len(sections) > 1 else ""


def _overview(sections: Sequence[Section]) -> str:
    """All series of all sections in one table, where there is something to compare."""
    table = overview_table([section.group for section in sections])
    return f'<section id="overview"><h2>Overview</h2>{table.as_html()}</section>' if len(table.rows) > 1 else ""


def _section(section: Section) -> str:
    group, training = section.group, [plot for plot in section.plots if plot.has_budgets]
    factors = [plot for plot in section.plots if plot.name == "factors"]
    scores = [plot for plot in section.plots if plot.metric and not plot.has_budgets]
    parts = [
        f'<section id="{group.slug}" class="group"><h2>{escape(group.title)}</h2>',
        f'<p class="headline">{escape(section.headline)}</p>',
        f'<p class="caution">{escape(section.caution)}</p>' if section.caution else "",
        _legend(section),
        _expectation(section),
        _figures(factors, group),
        part("Compression factors", section.factors.as_html()) if factors else "",
        _choices(section),
        _figures(scores, group),
        part("Summary", section.summary.as_html()) if section.summary.rows else "",
        part("Over seeds", section.sentences_as_html()) if section.comparisons else "",
        part("Options that differ", section.settings.as_html()) if section.settings.rows else "",
        part("Not finished", live_table(group).as_html()) if group.live else "",
        part("Training", _budgets(training) + _figures(training, group)) if training else "",
        part("Memory ledger", _ledger_box()) if section.ledger.rows else "",
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _legend(section: Section) -> str:
    used = {row["series"] for row in _all_rows(section.plots)}
    return legend({name: style for name, style in section.styles.items() if name in used})


def _all_rows(plots: Sequence[Plot]) -> list[dict[str, Any]]:
    return [row for plot in plots for row in plot.spec["data"]["values"]]


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


def _figures(plots: Sequence[Plot], group: Group) -> str:
    """A box for each chart; those of metrics and sizes other than the first are put away until they are chosen."""
    boxes = []
    first = next((plot.size for plot in plots if plot.size), "")
    for plot in plots:
        is_broad = bool(plot.name == "factors" or plot.size or (plot.has_budgets and plot.metric))
        is_first = plot.metric in ("", group.leading.name) and plot.size in ("", first)
        boxes.append(figure_box(plot, is_broad=is_broad, is_hidden=not is_first))
    kind = "plots small" if any(plot.has_budgets for plot in plots) else "plots"
    return f'<div class="{kind}">{"".join(boxes)}</div>' if plots else ""


def _choices(section: Section) -> str:
    """The lists of metrics and of sizes to choose from, what leads first; none where there is but one."""
    metrics, sizes = {plot.metric for plot in section.plots}, {plot.size for plot in section.plots}
    lists = [
        _list("Metric", "metric", {info.name: info.title for info in section.group.metrics if info.name in metrics}),
        _list("Against", "size", {name: WORDS[name] for name in MEASURES if name in sizes}),
    ]
    return f"<p>{' '.join(lists)}</p>" if any(lists) else ""


def _list(title: str, name: str, choices: Mapping[str, str]) -> str:
    options = "".join(f'<option value="{escape(key)}">{escape(words)}</option>' for key, words in choices.items())
    return f'<label>{title} <select class="{name}">{options}</select></label>' if len(choices) > 1 else ""


def _budgets(plots: Sequence[Plot]) -> str:
    """The list of budgets to choose from, in the order of the data; the full table is always shown."""
    rows = [row for row in _all_rows(plots) if row.get("budget") != "full"]
    first = middle_budget(rows)
    labels = dict.fromkeys(row["budget"] for row in rows)
    options = "".join(f"<option{' selected' if each == first else ''}>{escape(each)}</option>" for each in labels)
    return f'<p><label>Budget <select class="budget">{options}</select></label></p>' if options else ""


def _ledger_box() -> str:
    return '<p><label>Run <select class="run"></select></label></p><div class="ledger"></div>'


def _commands(found: Collected) -> str:
    """The commands of all runs, and the recipes."""
    sweeps = "\n".join(sweep_command(path) for path in found.recipes)
    trains = "\n".join(dict.fromkeys(train_command(record.config) for record in found.records if record.config))
    blocks = [f"<pre>{escape(sweeps)}</pre>"] if sweeps else []
    if trains:
        count = trains.count("\n") + 1
        what = f"{count} command{'' if count == 1 else 's'} of single runs"
        blocks.append(
            f"<details{' open' if count < 4 else ''}><summary>{what}</summary><pre>{escape(trains)}</pre></details>"
        )
    for path, text in found.recipes.items():
        blocks.append(f"<details><summary>{escape(path)}</summary><pre>{escape(text)}</pre></details>")
    return "\n".join(blocks)


# -- data for the script -----------------------------------------------------------------------------------------------


def _data(section: Section) -> dict[str, Any]:
    return plot_data(section.group.slug, section.plots) | {"ledger": _ledger_data(section.group)}


def _ledger_data(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "label": budget.series if budget.series == budget.label else f"{budget.series}, {budget.label}",
            "rows": pack([{name: getattr(table, name) for name in KEPT} for table in budget.first.tables]),
        }
        for budget in group.budgets
        if budget.first.tables
    ]


def train_command(config: dict[str, Any]) -> str:
    """`cce train DATA --method …`, ready for a shell."""
    plain = TrainConfig(data="", preset=config.get("preset") or "tuned")
    words = ["cce", "train", str(config.get("data", "DATA"))]
    for each in fields(TrainConfig):
        if each.name == "data" or each.name not in config:
            continue
        value = config[each.name]
        if each.name == "plugins":
            words += [word for plugin in value for word in ("--plugin", str(plugin))]
        elif each.name == "method" or (value is not None and value != getattr(plain, each.name)):
            words += _words(each.name.replace("_", "-"), value)
    known = {each.name for each in fields(TrainConfig)}
    unknown = [name for name, value in config.items() if value and name not in known]
    note = f"  # without {', '.join(unknown)}, which this version does not have" if unknown else ""
    return shlex.join(words) + note


def sweep_command(recipe: str) -> str:
    """`cce sweep RECIPE`."""
    return shlex.join(["cce", "sweep", recipe])


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict):
        return [f"--{name}", *(f"{key}={_toml(item)}" for key, item in value.items())]
    if isinstance(value, list | tuple):
        return [f"--{name}", *(str(item) for item in value)]
    return [f"--{name}", str(value)]


def _toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
