"""A report: a section for each group of runs (headline, tables, charts), made as a whole and then written to disk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cce.checks import check_choice
from cce.files import write_atomic
from cce_lab.report.factors import Factor
from cce_lab.report.groups import FULL, WORDS, Collected, Group, collect, group_records
from cce_lab.report.page import make_page
from cce_lab.report.plots import plots_of
from cce_lab.report.tables import Table, environment_table, factor_table, summary_table
from cce_lab.report.vega import Plot, Style, can_draw, palette, picture

PAGE = "index.html"
FORMATS = ("html", "latex")


@dataclass(frozen=True)
class Report:
    """A report that was written: its folder, its files, and a section for each set of runs that may be compared."""

    folder: Path
    sections: tuple[Section, ...]
    files: tuple[Path, ...]  # the page first
    found: Collected  # what was read

    @property
    def page(self) -> Path:
        """The HTML page, which is written where charts can be drawn."""
        return self.folder / PAGE

    def rows(self, table: str = "summary", section: int = 0) -> list[dict[str, Any]]:
        """A table as a list of dictionaries: `summary` or `factors`."""
        if not 0 <= section < len(self.sections):
            raise IndexError(f"section must lie in [0, {len(self.sections)}), got {section}.")
        tables = self.sections[section].tables
        check_choice("table", table, tables)
        return tables[table].as_dicts()


def make_report(
    *runs: Path | str,
    out: Path | str | None = None,
    format: str = "html",  # noqa: A002 - the shell's name
) -> Report:
    """Write the report of runs, as `cce report` does, and return it with its tables as rows.

    runs: files of records (.jsonl), or folders of sweeps and runs.
    out: the folder of the report (default: report, inside the first of `runs`, or beside it if that is a file).
    format: `html`: a page, and tables as CSV; `latex`: tables for the package booktabs, and charts as PDF.
    """
    if not runs:
        raise ValueError("runs must name at least one folder or file of records, got none.")
    paths = [Path(run) for run in runs]
    if out is None:
        out = (paths[0] if paths[0].is_dir() else paths[0].parent) / "report"
    return write_report(collect(paths), Path(out), format=format)


def write_report(found: Collected, out: Path, *, format: str = "html") -> Report:  # noqa: A002
    """Write everything to `out`; without vl-convert no charts and no page."""
    check_choice("format", format, FORMATS)
    sections, is_page = make_sections(found), format == "html"
    files: dict[Path, str | bytes] = {out / PAGE: make_page(found, sections)} if is_page and can_draw() else {}
    tables = [table for section in sections for table in section.tables.values() if table.rows]
    for table in [*tables, environment_table(found.records)]:
        files[out / "tables" / f"{table.name}.csv"] = table.as_csv()
        files |= {} if is_page else {out / "tables" / f"{table.name}.tex": table.as_latex()}
    for section in sections if not is_page and can_draw() else ():
        for plot in section.plots:
            title = f"{plot.title}: {section.group.title}"
            name = f"{section.group.slug}-{plot.name}.pdf"
            files[out / "figures" / name] = picture(plot.spec, title=title, kind="pdf")
    for path, content in files.items():  # only now: everything could be made
        write_atomic(path, content)
    return Report(out, tuple(sections), tuple(files), found)


NO_BASELINE = "No run with full tables, so no size is known that reaches their score; factors compare sizes only."


@dataclass(frozen=True)
class Section:
    """One section of a report."""

    group: Group
    headline: str
    caution: str  # what speaks against a comparison: full tables that were not done; or nothing
    tables: dict[str, Table]  # summary, factors
    plots: list[Plot]
    styles: dict[str, Style]
    expected: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
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
        tables = {"summary": summary_table(group), "factors": factor_table(group, expected)}
        plots = plots_of(group, styles)
        sections.append(Section(group, headline(group), caution(group), tables, plots, styles, expected))
    return sections


def headline(group: Group) -> str:
    if group.baseline_score is None:
        return f"{NO_BASELINE} {_best(group)}"
    factors = {name: group.factor(name, group.lead) for name in group.series if name != group.full_series}
    if not factors:
        return f"Only the full table has been run: {_score(group, group.baseline_score)}."
    reached = [name for name in factors if factors[name].is_reached]
    # those that all seeds reach come first, then by size
    reached.sort(key=lambda name: (factors[name].num_reached < factors[name].num_seeds, -(factors[name].value or 0)))
    if reached:
        first, *others = reached
        text = f"{first} reaches the full table's {group.leading.title} with {_fewer(group, first)}"
        text += _not_all(factors[first])
        text += f"; next best, {others[0]}: {factors[others[0]]}{_not_all(factors[others[0]])}." if others else "."
    else:
        full = _score(group, group.baseline_score)
        text = f"No method reaches the full table's {full} within the sizes tried. {_best(group)}"
    return text if any(len(budget.records) > 1 for budget in group.budgets) else f"{text} One seed."


def _fewer(group: Group, series: str) -> str:
    """How many times fewer by the leading measure, and by the others that are known."""
    factors = {measure: group.factor(series, measure) for measure in (group.lead, "bytes", "params")}
    first, *others = [f"{each} fewer {WORDS[measure]}" for measure, each in factors.items() if each.is_reached]
    return f"{first} ({', '.join(others)})" if others else first


def _not_all(factor: Factor) -> str:
    """That the mean over seeds gets there, but not each of them."""
    missed = factor.num_reached < factor.num_seeds
    return f", in the mean: {factor.num_reached} of {factor.num_seeds} seeds do" if missed else ""


def _best(group: Group) -> str:
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
    count = 0
    for record in runs:
        losses = [group.leading.loss(scores.get(group.leading.name, math.nan)) for scores in record.curve]
        falls_to_zero = record.config.get("lr_schedule", "constant") != "constant"
        count += not falls_to_zero and math.isfinite(losses[-1]) and losses[-1] == min(losses)
    if not count:
        return ""
    which = "its only run" if len(runs) == 1 else f"{count} of its {len(runs)} runs"
    return (
        f"The full table was best at its last validation in {which}: it may not have been trained to its end, "
        "and factors against it may be too large."
    )
