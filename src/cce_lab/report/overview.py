"""One table over all data sets and protocols, as the paper has it: who needs how much less, gains how much, how fast.

And one of the options in which the series of a section differ: whether all were trained with equal care.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cce.evaluation import Better
from cce_lab.report.factors import format_range, is_number
from cce_lab.report.groups import WORDS, group_records
from cce_lab.report.table import Cell, Column, Table
from cce_lab.report.tables import summary_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cce.records import RunRecord
    from cce_lab.report.groups import Budget, Group

FACTORS = ("training", "bytes", "params")
AUC = "auc"
ABOUT_SECONDS = (
    "seconds times threads until the best validation of the full table of the same seed is reached, at the budget that "
    "is fastest, mean over the seeds that reach it; by the share of steps, with validations and clusterings"
)
NOT_SETTINGS = (  # what differs between the runs of one series, or says where they ran
    *("data", "method", "cap", "num_params", "nbytes", "compression", "seed", "start_from", "num_learned"),
    *(
        "threads",
        "device",
        "source_epochs",
        "source_training_nbytes",
        "log_every",
        "keep_last",
        "tensorboard",
        "checkpoint_every",
    ),
)


def overview_table(groups: Sequence[Group]) -> Table:
    """A line for each series of each group, the full table first."""
    columns = [
        Column("method", is_text=True),
        Column("data set", is_text=True),
        Column("model", is_text=True),
        Column("epochs"),
        *(
            Column(f"fewer {WORDS[measure]}", about="times fewer than the full table, at its score")
            for measure in FACTORS
        ),
        Column("range", about="over seeds, of the first of them that is known"),
        Column("best gain", about="over the full table of the same seed, in percent of its score, at the best budget"),
        Column("AUC", about="at the budget that is best by it, mean over seeds"),
        Column("CPU s to full", about=ABOUT_SECONDS),
    ]
    rows = [_row(group, name) for group in groups for name in group.series]
    return Table("overview", "Overview", columns, rows)


def _row(group: Group, name: str) -> list[Cell]:
    data, model, epochs = group.key
    about = [Cell(name), Cell(data), Cell(model.rpartition("/")[2]), Cell(epochs)]
    return [*about, *_factors(group, name), _gain(group, name), _auc(group, name), _seconds(group, name)]


def _factors(group: Group, name: str) -> list[Cell]:
    """How many times fewer, by each measure, and the range over seeds; nothing for the full table itself."""
    if name == group.full_series:
        return [Cell(None)] * (len(FACTORS) + 1)
    factors = {measure: group.factor(name, measure) for measure in FACTORS}
    cells = [Cell(factor.value, str(factor), "; ".join(factor.notes)) for factor in factors.values()]
    seeds = factors[group.lead].seeds
    if seeds is None or seeds.count < 2:
        return [*cells, Cell(None)]
    return [*cells, Cell(seeds.mean, format_range(seeds.least, seeds.greatest), f"{seeds.count} seeds")]


def _gain(group: Group, name: str) -> Cell:
    """The best of its budgets; negative where all are worse than the full table."""
    full = group.baseline_score
    found = [(gain, budget.label) for budget in group.series[name] if (gain := gain_of(group, budget)) is not None]
    if full is None or not found or name == group.full_series:
        return Cell(None)
    gain, label = max(found)
    return Cell(gain, f"{gain:+.2f} %".replace("-", "−"), f"{group.leading.title}, {label}")


def gain_of(group: Group, budget: Budget) -> float | None:
    """By how many percent a budget's leading score is better than the full table's of the same seed."""
    difference, full = group.against_full(budget), group.baseline_score
    if difference is None or not full:
        return None
    signs = {Better.LOWER: -1, Better.HIGHER: 1}
    return 100 * signs[group.leading.better] * difference / abs(full) if group.leading.better in signs else None


def _auc(group: Group, name: str) -> Cell:
    found = [(score.mean, each.label) for each in group.series[name] if (score := each.over_seeds(AUC)) is not None]
    if not found:
        return Cell(None)
    auc, label = max(found)
    return Cell(auc, f"{auc:.4f}", label)


def _seconds(group: Group, name: str) -> Cell:
    found = [(mean, each.label) for each in group.series[name] if (mean := seconds_to_full(group, each)) is not None]
    if not found:
        return Cell(None)
    seconds, label = min(found)
    return Cell(seconds, f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}", label)


def seconds_to_full(group: Group, budget: Budget) -> float | None:
    """The mean over seeds of the CPU seconds until the full table's best validation is reached; None if none does."""
    if group.baseline is None:
        return None
    levels = {record.seed: _best_loss(group, record) for record in group.baseline.records}
    found = [_reached_after(group, record, levels.get(record.seed, math.nan)) for record in budget.records]
    reached = [seconds for seconds in found if seconds is not None]
    return fmean(reached) if reached else None


def _best_loss(group: Group, record: RunRecord) -> float:
    return min((loss for _, loss in _losses(group, record)), default=math.nan)


def _losses(group: Group, record: RunRecord) -> list[tuple[float, float]]:
    """Steps and validation losses."""
    name = group.leading.name
    lines = [line for line in record.curve if is_number(line.get(name)) and is_number(line.get("step"))]
    return [(line["step"], group.leading.loss(line[name])) for line in lines]


def _reached_after(group: Group, record: RunRecord, level: float) -> float | None:
    losses = _losses(group, record)
    step = next((step for step, loss in losses if loss <= level), None)
    if step is None:
        return None
    parts = record.seconds_by_part
    seconds = sum(parts.get(part, 0.0) for part in ("train", "validate", "cluster")) if parts else record.seconds
    return float(seconds * step / losses[-1][0] * (record.environment.get("threads") or 1))


def sweep_table(records: Iterable[RunRecord]) -> str:
    """What came of a sweep, as text: a few columns of the summary of each group."""
    parts = []
    for group in group_records(records):
        score = group.leading.title
        names = (
            "series",
            "budget",
            "params",
            "fewer params",
            "served bytes",
            score,
            "against full",
            "seconds",
            "seeds",
        )
        parts += [group.title, summary_table(group).only(names).as_text()]
    return "\n".join(parts)


def settings_table(group: Group) -> Table:
    """A line for each series, a column for each option in which series differ; none if they all agree.

    What a record does not tell, as older ones do not tell everything, is no difference.
    """
    values = {name: _settings(budgets) for name, budgets in group.series.items()}
    names = [
        name for name in dict.fromkeys(key for found in values.values() for key in found) if name not in NOT_SETTINGS
    ]
    differing = [name for name in names if len({found[name] for found in values.values() if name in found}) > 1]
    columns = [Column("series", is_text=True), *(Column(name, is_text=True) for name in differing)]
    rows = [[Cell(name), *(Cell(found.get(key, "")) for key in differing)] for name, found in values.items()]
    return Table(f"{group.slug}-settings", "Options that differ", columns, rows if differing else [])


def _settings(budgets: Sequence[Budget]) -> dict[str, str]:
    """The options of a series in words; several values of one, as tuning may give by budget, one after the other."""
    found: dict[str, list[str]] = {}
    for budget in budgets:
        for name, value in _flat(budget.first.config).items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return {name: " / ".join(values) for name, values in found.items()}


def _flat(config: dict[str, Any]) -> dict[str, str]:
    """Options and, by their own names, those of methods and optimizers; what is not set is left out."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= value if isinstance(value, dict) and name not in NOT_SETTINGS else {name: value}
    return {name: str(value) for name, value in flat.items() if value not in (None, {}, [])}
