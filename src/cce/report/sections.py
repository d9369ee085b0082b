"""A group of runs with all that is told about it: its headline, its tables and its charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cce.report.factor_table import factor_table
from cce.report.groups import FULL, group_records
from cce.report.headline import headline
from cce.report.ledger_table import ledger_table
from cce.report.palette import Style, palette
from cce.report.plots import plots_of
from cce.report.summary_table import summary_table

if TYPE_CHECKING:
    from cce.report.groups import Group
    from cce.report.reading import Collected
    from cce.report.specs import Plot
    from cce.report.tables import Table


@dataclass(frozen=True)
class Section:
    """One section of a report."""

    group: Group
    headline: str
    factors: Table
    summary: Table
    ledger: Table
    plots: list[Plot]
    styles: dict[str, Style]
    expected: dict[str, Any]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those that are written as files."""
        return self.summary, self.factors, self.ledger

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        data, model, epochs = self.group.key
        return {
            "data": data,
            "model": model,
            "epochs": epochs,
            "headline": self.headline,
            "baseline_bce": self.group.baseline_bce,
            "factors": self.factors.as_dicts(),
            "summary": self.summary.as_dicts(),
        }


def make_sections(found: Collected) -> list[Section]:
    """A section for each group; a series has the same colour in all of them."""
    groups = group_records(found.records, found.live)
    names = {name for group in groups for name in group.series}
    names |= {run.series or str(run.config.get("method", "cce")) for group in groups for run in group.live}
    styles = palette(names)
    return [_section(group, styles, found.expected.get(group.key, {})) for group in groups]


def _section(group: Group, styles: dict[str, Style], expected: dict[str, Any]) -> Section:
    mine = {name: styles[name] for name in sorted(styles, key=lambda name: (name != FULL, name))}
    return Section(
        group,
        headline(group),
        factor_table(group, expected),
        summary_table(group),
        ledger_table(group),
        plots_of(group, mine, expected),
        styles,
        expected,
    )
