"""The summary: a line for each series and budget, with what it weighs and what it scores."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from cce.report.statistics import spread
from cce.report.tables import Cell, Column, Table, ratio_cell
from cce.text import format_bytes

if TYPE_CHECKING:
    from cce.report.groups import Budget, Group
    from cce.report.statistics import Spread

SUMMARY = (
    Column("series", is_text=True),
    Column("budget", is_text=True),
    Column("params", about="trainable numbers of all tables"),
    Column("fewer params", about="times fewer than the full tables have"),
    Column("largest", about="times fewer params of the largest table"),
    Column("bytes", about="of all tables, pointers included"),
    Column("fewer bytes", about="times fewer than the full tables have"),
    Column("BCE", about="on the test rows: mean over seeds, least to greatest"),
    *(Column(f"BCE {name}", shown=False) for name in ("min", "max", "95% low", "95% high")),
    Column("against full", about="BCE less that of the full table; negative is better"),
    Column("AUC", about="on the test rows: mean over seeds"),
    *(Column(f"AUC {name}", shown=False) for name in ("min", "max")),
    Column("best epoch", about="in which the best validation was, mean over seeds"),
    Column("rows/s", about="trained a second, without validation, clustering and saving"),
    Column("seconds", about="all parts together, mean over seeds"),
    Column("seeds"),
)


def summary_table(group: Group) -> Table:
    """A line for each series and budget."""
    return Table(f"{group.slug}-summary", "Summary", SUMMARY, [_summary_row(group, each) for each in group.budgets])


def _summary_row(group: Group, budget: Budget) -> list[Cell]:
    bce, auc = budget.over_seeds("bce"), budget.over_seeds("auc")
    params, nbytes = budget.size("params") or 0, budget.size("bytes") or 0
    speed, seconds = (
        spread(getattr(record, name) for record in budget.records) for name in ("samples_per_second", "seconds")
    )
    epoch = _best_epoch(budget)
    return [
        Cell(budget.series),
        Cell(budget.label),
        Cell(round(params), f"{params:,.0f}"),
        ratio_cell(group.full_size("params"), params),
        ratio_cell(group.full_size("largest params"), budget.size("largest params")),
        Cell(round(nbytes), format_bytes(round(nbytes))),
        ratio_cell(group.full_size("bytes"), nbytes),
        Cell(bce.mean if bce else None, spread_text(bce), _interval(bce)),
        *(Cell(getattr(bce, name) if bce else None) for name in ("least", "greatest", "low", "high")),
        _difference(bce, group.baseline_bce),
        Cell(auc.mean if auc else None, f"{auc.mean:.4f}" if auc else "", _interval(auc)),
        *(Cell(getattr(auc, name) if auc else None) for name in ("least", "greatest")),
        Cell(epoch, "" if epoch is None else f"{epoch:.1f}".removesuffix(".0")),
        Cell(speed.mean if speed else None, f"{speed.mean:,.0f}" if speed else ""),
        Cell(seconds.mean if seconds else None, f"{seconds.mean:,.0f}" if seconds else ""),
        Cell(len(budget.records), "", f"seeds {', '.join(str(record.seed) for record in budget.records)}"),
    ]


def spread_text(found: Spread | None, digits: int = 4) -> str:
    """`0.4512 [0.4508–0.4519]`; one seed has no range."""
    if found is None:
        return ""
    ends = f" [{found.least:.{digits}f}–{found.greatest:.{digits}f}]" if found.count > 1 else ""
    return f"{found.mean:.{digits}f}{ends}"


def _interval(found: Spread | None) -> str:
    if found is None or found.low is None or found.high is None:
        return ""
    return f"95 % confidence interval of the mean: {found.low:.5f} to {found.high:.5f}"


def _difference(bce: Spread | None, baseline: float | None) -> Cell:
    if bce is None or baseline is None:
        return Cell(None)
    return Cell(bce.mean - baseline, f"{bce.mean - baseline:+.4f}".replace("-", "−"))


def _best_epoch(budget: Budget) -> float | None:
    """The epoch of the best validation; unfinished or unvalidated runs have none."""
    epochs = []
    for record in budget.records:
        scored = [scores for scores in record.curve if scores.get("bce") is not None and "epoch" in scores]
        if scored:
            epochs.append(min(scored, key=lambda scores: scores["bce"])["epoch"])
    return fmean(epochs) if epochs else None
