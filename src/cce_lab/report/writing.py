"""A report: a section for each group of runs (headline, tables, charts), written to disk whole or not at all, and in a
notebook.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.checks import check_choice
from cce.files import write_together
from cce_lab.report.factors import Factor, Kind
from cce_lab.report.groups import FULL, WORDS, Group, group_records
from cce_lab.report.page import make_page
from cce_lab.report.plots import plots_of
from cce_lab.report.reading import Collected, collect
from cce_lab.report.tables import environment_table, factor_table, settings_table, summary_table
from cce_lab.report.vega import Plot, Style, can_draw, palette

if TYPE_CHECKING:
    from cce.evaluation import MetricInfo
    from cce.records import RunRecord
    from cce_lab.report.reading import Collected
    from cce_lab.report.table import Table

PAGE = "index.html"
FORMATS = {  # endings of the files of tables and of figures
    "html": (("csv", "md"), ("svg", "png")),
    "latex": (("csv", "tex"), ("pdf",)),
}


@dataclass(frozen=True)
class Report:
    """A report that was written: its folder, its files, and a section for each set of runs that may be compared."""

    folder: Path
    sections: tuple[Section, ...]
    files: tuple[Path, ...]  # the page first
    found: Collected  # what was read

    @property
    def page(self) -> Path:
        """The HTML page, which is written where figures can be drawn."""
        return self.folder / PAGE

    def figure_names(self, section: int = 0) -> list[str]:
        """Names of the figures of a section."""
        return [plot.name for plot in self._section(section).plots]

    def figure(self, name: str, section: int = 0) -> Plot:
        """A figure by name, such as `bce-bytes`; a notebook shows it as SVG."""
        here = self._section(section)
        check_choice("figure", name, self.figure_names(section))
        plot = next(plot for plot in here.plots if plot.name == name)
        return replace(plot, title=f"{plot.title}: {here.group.title}")

    def rows(self, table: str = "summary", section: int = 0) -> list[dict[str, Any]]:
        """A table as a list of dictionaries: `summary`, `factors` or `settings`."""
        tables = self._section(section).tables
        check_choice("table", table, tables)
        return tables[table].as_dicts()

    def _section(self, index: int) -> Section:
        if not 0 <= index < len(self.sections):
            raise IndexError(f"section must lie in [0, {len(self.sections)}), got {index}.")
        return self.sections[index]

    def _repr_html_(self) -> str:
        """The headline of each section."""
        parts = [f"<p><b>{escape(s.group.title)}</b>. {escape(s.headline)}</p>" for s in self.sections]
        return "".join(parts) + f"<p>{escape(str(self.page))}</p>"


def make_report(
    *runs: Path | str,
    out: Path | str | None = None,
    format: str = "html",  # noqa: A002 - the shell's name
    figures: bool = True,
) -> Report:
    """Write the report of runs, as `cce report` does, and return it: its tables as rows, its figures to be shown.

    runs: files of records (.jsonl), or folders of sweeps and runs.
    out: the folder of the report (default: report, inside the first of `runs`, or beside it if that is a file).
    format: `html`, or `latex`: tables for the package booktabs, and figures as PDF.
    figures: write files of all figures as well.
    """
    if not runs:
        raise ValueError("runs must name at least one folder or file of records, got none.")
    paths = [Path(run) for run in runs]
    if out is None:
        out = (paths[0] if paths[0].is_dir() else paths[0].parent) / "report"
    return write_report(collect(paths), Path(out), format=format, figures=figures)


def write_report(
    found: Collected,
    out: Path,
    *,
    format: str = "html",  # noqa: A002
    figures: bool = True,
) -> Report:
    """Write everything to `out`; without vl-convert no figures and no page."""
    check_choice("format", format, FORMATS)
    sections, paths = make_sections(found), []
    table_kinds, figure_kinds = FORMATS[format]
    with write_together() as write:
        if format == "html" and can_draw():
            paths.append(out / PAGE)
            write(out / PAGE, make_page(found, sections))
        tables = [table for section in sections for table in section.tables.values() if table.rows]
        for table in [*tables, environment_table(found.records)]:
            texts = {"csv": table.as_csv, "md": table.as_markdown, "tex": table.as_latex}
            for kind in table_kinds:
                paths.append(out / "tables" / f"{table.name}.{kind}")
                write(paths[-1], texts[kind]())
        for section in sections if figures and can_draw() else ():
            for plot in section.plots:
                drawn = replace(plot, title=f"{plot.title}: {section.group.title}")
                for kind in figure_kinds:
                    paths.append(out / "figures" / f"{section.group.slug}-{plot.name}.{kind}")
                    write(paths[-1], drawn.picture(kind))
    return Report(out, tuple(sections), tuple(paths), found)


NO_BASELINE = "No run with full tables, so no size is known that reaches their score; factors compare sizes only."
MOST_VERSIONS = 3  # that are named; the environment table has them all


@dataclass(frozen=True)
class Section:
    """One section of a report."""

    group: Group
    headline: str
    caution: str  # what speaks against a comparison: full tables that were not done, code that changed; or nothing
    tables: dict[str, Table]  # summary, factors, settings
    plots: list[Plot]
    styles: dict[str, Style]
    expected: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        data, model, epochs = self.group.key
        found = {"data": data, "model": model, "epochs": epochs, "headline": self.headline, "caution": self.caution}
        found |= {"metric": self.group.leading.name, "baseline": self.group.baseline_score}
        return found | {name: self.tables[name].as_dicts() for name in ("factors", "summary")}


def make_sections(found: Collected) -> list[Section]:
    """A section for each group; a series has the same colour in all of them."""
    groups = group_records(found.records)
    names = palette(name for group in groups for name in group.series)
    styles = {name: names[name] for name in sorted(names, key=lambda name: (name != FULL, name))}
    sections = []
    for group in groups:
        expected = found.expected.get(group.key, {})
        tables = {
            "summary": summary_table(group),
            "factors": factor_table(group, expected),
            "settings": settings_table(group),
        }
        cautions = " ".join(words for words in (caution(group), mixed_code(group)) if words)
        plots = plots_of(group, styles)
        sections.append(Section(group, headline(group), cautions, tables, plots, styles, expected))
    return sections


def headline(group: Group) -> str:
    """The finding in a sentence or two."""
    if group.baseline_score is None:
        return f"{NO_BASELINE} {_best(group)}"
    factors = {name: group.factor(name, group.lead) for name in group.series if name != group.full_series}
    if not factors:
        return f"Only the full table has been run: {_score(group, group.baseline_score)}."
    reached = [name for name in factors if factors[name].is_reached]
    # those that all seeds reach come first, then by size
    reached.sort(key=lambda name: (factors[name].num_reached < factors[name].num_seeds, -(factors[name].value or 0)))
    text = _reached(group, factors, reached) if reached else _closest(group, factors)
    return text if any(len(budget.records) > 1 for budget in group.budgets) else f"{text} One seed."


def _reached(group: Group, factors: dict[str, Factor], reached: list[str]) -> str:
    first, *others = reached
    others_by = {measure: group.factor(first, measure) for measure in ("bytes", "params") if measure != group.lead}
    known = [f"{factor} fewer {WORDS[measure]}" for measure, factor in others_by.items() if factor.is_reached]
    more = f" ({', '.join(known)})" if known else ""
    what = f"{factors[first]} fewer {WORDS[group.lead]}{more}"
    text = f"{first} reaches the full table's {group.leading.title} with {what}{_not_all(factors[first])}"
    if others:
        second = factors[others[0]]
        text = f"{text}; next best, {others[0]}: {second}{_not_all(second)}."
        return f"{text} cce: {factors['cce']}." if "cce" in factors and "cce" not in reached[:2] else text
    rest = len(factors) - 1
    return f"{text}; none of the other {rest} does within the sizes tried." if rest > 1 else f"{text}."


def _not_all(factor: Factor) -> str:
    """That the mean over seeds gets there, but not each of them."""
    missed = factor.num_reached < factor.num_seeds
    return f", in the mean: {factor.num_reached} of {factor.num_seeds} seeds do" if missed else ""


def _closest(group: Group, factors: dict[str, Factor]) -> str:
    baseline = f"{group.leading.title} of {group.leading.format(group.baseline_score)}"
    text = f"No method reaches the full table's {baseline} within the sizes tried. {_best(group)}"
    extrapolated = {name: each for name, each in factors.items() if each.kind is Kind.EXTRAPOLATED}
    if not extrapolated:
        return text
    best = max(extrapolated, key=lambda name: extrapolated[name].value or 0)
    factor = str(extrapolated[best]).removesuffix(" (extrapolated)")
    return f"{text} By extrapolation {best} would, at {factor} fewer {WORDS[group.lead]}."


def _best(group: Group) -> str:
    """The best score of what is not the full table."""
    others = [each for each in group.budgets if each.series != group.full_series]
    scored = [(found.mean, each) for each in others if (found := each.over_seeds(group.leading.name))]
    if not scored:
        return "None has a score."
    score, budget = min(scored, key=lambda pair: group.leading.loss(pair[0]))
    return f"Best: {budget.series}, {budget.label}, {_score(group, score)}."


def _score(group: Group, score: float) -> str:
    return f"{group.leading.title} {group.leading.format(score)}"


def caution(group: Group) -> str:
    """A warning if full tables were best at their last validation, and so perhaps would have become better still.

    Not of a single epoch, which is all there is, nor of learning rates that fall to zero at the end.
    """
    *_, epochs = group.key
    if group.baseline is None or epochs == 1:
        return ""
    runs = [record for record in group.baseline.records if len(record.curve) > 1]
    count = sum(_was_improving(record, group.leading) for record in runs)
    if not count:
        return ""
    which = "its only run" if len(runs) == 1 else f"{count} of its {len(runs)} runs"
    return (
        f"The full table was best at its last validation in {which}: it may not have been trained to its end, "
        "and factors against it may be too large."
    )


def _was_improving(record: RunRecord, leading: MetricInfo) -> bool:
    losses = [leading.loss(scores.get(leading.name, math.nan)) for scores in record.curve]
    falls_to_zero = record.config.get("lr_schedule", "constant") != "constant"
    return not falls_to_zero and math.isfinite(losses[-1]) and losses[-1] == min(losses)


def mixed_code(group: Group) -> str:
    """A warning if the runs of a group come from several versions of the code: commits, or else package versions."""
    found = [record.environment for record in group.records]
    versions = Counter(str(each.get("commit") or each.get("cce") or "a version that is not known") for each in found)
    if len(versions) < 2:
        return ""
    words = [f"{count} of {version}" for version, count in versions.most_common(MOST_VERSIONS)]
    words += [f"{len(versions) - MOST_VERSIONS} more"] if len(versions) > MOST_VERSIONS else []
    return f"These runs come from {len(versions)} versions of the code: {', '.join(words)}."
