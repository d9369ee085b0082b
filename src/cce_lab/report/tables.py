"""The tables of a report: the summary, compression factors, the memory ledger, and where runs ran."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cce.evaluation import Better, describe_metric
from cce.footprint import Footprints
from cce.text import format_bytes, format_ratio
from cce_lab.report.factors import Factor, format_range, is_number, spread
from cce_lab.report.groups import MEASURES, WORDS, budget_words
from cce_lab.report.table import Cell, Column, Table, ratio_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cce.evaluation import MetricInfo
    from cce.footprint import Footprint
    from cce.records import RunRecord
    from cce_lab.report.factors import Spread
    from cce_lab.report.groups import Budget, Group

Entry = tuple[Column, Cell]
SIZES = (
    Column("series", is_text=True),
    Column("budget", is_text=True),
    Column("training bytes", about="of tables, pointers, gradients, optimizer and clustering, at most"),
    Column("fewer in training", about="times fewer than the full tables hold"),
    Column("served bytes", about="of all tables, pointers included"),
    Column("fewer served", about="times fewer than the full tables have"),
    Column("params", about="trainable parameters of all tables"),
    Column("fewer params", about="times fewer than the full tables have"),
    Column("largest", about="times fewer params of the largest table"),
)
COSTS = (
    Column("best epoch", about="in which the best validation was, mean over seeds"),
    Column("rows/s", about="trained a second, without validation, clustering and saving"),
    Column("seconds", about="all parts together, mean over seeds"),
    Column("seeds"),
)
ENDS = {"min": "least", "max": "greatest", "95% low": "low", "95% high": "high"}
EXPECTED = {"params": "compression", "largest params": "largest"}  # measure → the recipe's word
TITLES = {"compression": "expected", "largest": "largest table: expected"}
SPREAD = ("least", "mean", "greatest", "low", "high")
LEDGER_WORDS = ("series", "budget", "table", "method")
LEDGER_NUMBERS = (
    *("ids", "params", "codebook", "pointers", "gradients", "optimizer", "codes", "clustering"),
    *("fewer bytes", "fewer params"),
)


def summary_table(group: Group) -> Table:
    """A line for each series and budget: its size, all scores, and its cost."""
    scores = [column for info in group.metrics for column in _score_columns(group, info)]
    rows = [[*_sizes(group, each), *_scores(group, each), *_costs(group, each)] for each in group.budgets]
    return Table(f"{group.slug}-summary", "Summary", [*SIZES, *scores, *COSTS], rows)


def _sizes(group: Group, budget: Budget) -> list[Cell]:
    params = budget.size("params") or 0
    weights = [cell for measure in ("training", "bytes") for cell in _byte_cells(group, budget, measure)]
    return [
        Cell(budget.series),
        Cell(budget.label),
        *weights,
        Cell(round(params), f"{params:,.0f}"),
        ratio_cell(group.full_size("params"), params),
        ratio_cell(group.full_size("largest params"), budget.size("largest params")),
    ]


def _byte_cells(group: Group, budget: Budget, measure: str) -> list[Cell]:
    """Bytes, and how many times fewer than the full tables have."""
    nbytes = budget.size(measure)
    if nbytes is None:
        return [Cell(None), Cell(None)]
    return [Cell(round(nbytes), format_bytes(round(nbytes))), ratio_cell(group.full_size(measure), nbytes)]


def _score_columns(group: Group, info: MetricInfo) -> list[Column]:
    about = "on the test rows: mean over seeds, least to greatest"
    about += "" if info.better is Better.UNKNOWN else f"; {info.better} is better"
    columns = [Column(info.title, about=about), *(Column(f"{info.title} {end}", shown=False) for end in ENDS)]
    if info.name == group.leading.name:
        columns.append(Column("against full", about=f"{info.title} less that of the full table of the same seed"))
    return columns


def _scores(group: Group, budget: Budget) -> list[Cell]:
    cells = []
    for info in group.metrics:
        found = budget.over_seeds(info.name)
        cells.append(Cell(found.mean if found else None, spread_text(found), _interval(found)))
        cells += [Cell(getattr(found, name) if found else None) for name in ENDS.values()]
        if info.name == group.leading.name:
            cells.append(_difference(group.against_full(budget)))
    return cells


def _costs(group: Group, budget: Budget) -> list[Cell]:
    speed, seconds = (
        spread(getattr(record, name) for record in budget.records) for name in ("samples_per_second", "seconds")
    )
    epoch = _best_epoch(budget, group.leading)
    return [
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


def _difference(difference: float | None) -> Cell:
    return Cell(None) if difference is None else Cell(difference, f"{difference:+.4f}".replace("-", "−"))


def _best_epoch(budget: Budget, leading: MetricInfo) -> float | None:
    """The epoch of the best validation; unfinished or unvalidated runs have none.

    Refits follow the last epoch and are counted as part of it; stored records may count them as one more.
    """
    epochs = []
    for record in budget.records:
        lines = [line for line in record.curve if is_number(line.get(leading.name)) and "epoch" in line]
        scored = [(leading.loss(line[leading.name]), line["epoch"]) for line in lines]
        if scored:
            epochs.append(min(min(scored)[1], record.config.get("epochs") or math.inf))
    return fmean(epochs) if epochs else None


def factor_table(group: Group, expected: dict[str, Any]) -> Table:
    """A line for each series but the full table, what was reached first, the greatest factor before others."""
    names = [name for name in group.series if name != group.full_series]
    factors = {name: {measure: group.factor(name, measure) for measure in MEASURES} for name in names}
    names.sort(key=lambda name: _rank(name, factors[name][group.lead]))
    entries = [_entries(name, factors[name], expected, group) for name in names]
    columns = [column for column, _ in entries[0]] if entries else []
    rows = [[cell for _, cell in line] for line in entries]
    return Table(f"{group.slug}-factors", "Compression factors", columns, rows)


def _rank(name: str, factor: Factor) -> tuple[bool, float, str]:
    """What was reached comes before what was extrapolated; then the greatest first."""
    return not factor.is_reached, -(factor.value or 0), name


def expected_value(value: Any) -> float | None:
    """One number for a number, or for a range of two."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return float((value[0] * value[1]) ** 0.5)
    return float(value) if isinstance(value, int | float) else None


def _entries(name: str, factors: dict[str, Factor], expected: dict[str, Any], group: Group) -> list[Entry]:
    """The cells of a line, each with its column; what is for the CSV file only comes last."""
    shown, file_only = [(Column("series", is_text=True), Cell(name))], []
    for measure, factor in factors.items():
        about = f"times fewer than the full table, where its {group.leading.title} is reached"
        notes = "; ".join(factor.notes)
        shown.append((Column(_fewer(measure), about=about), Cell(factor.value, str(factor), notes)))
        shown += _expected(name, EXPECTED.get(measure, ""), expected)
        shown += _seeds(factor) if measure == group.lead else []
        file_only += _for_file(measure, factor)
    keys = [key for key in expected if key not in (*EXPECTED.values(), "source") and not key.startswith("full_")]
    scores = [entry for key in keys for entry in _expected(name, key, expected)]
    return [*shown, *scores, (Column("how", is_text=True), Cell(how(factors[group.lead]))), *file_only]


def _fewer(measure: str) -> str:
    """`fewer params`, or `largest table: fewer params`."""
    of, _, what = WORDS[measure].rpartition(": ")
    return f"{of}: fewer {what}" if of else f"fewer {what}"


def _seeds(factor: Factor) -> list[Entry]:
    about = "geometric mean of the seeds' own factors, least to greatest"
    seeds, mean, interval = factor.seeds, Cell(None), Cell(None)
    if seeds is not None:
        ends = f" [{format_range(seeds.least, seeds.greatest)}]" if seeds.count > 1 else ""
        mean = Cell(seeds.mean, f"{format_ratio(seeds.mean)}{ends}")
        if seeds.low is not None and seeds.high is not None:
            interval = Cell(seeds.low, format_range(seeds.low, seeds.high))
    return [(Column("over seeds", about=about), mean), (Column("95% interval", about="of that mean"), interval)]


def _for_file(measure: str, factor: Factor) -> list[Entry]:
    values = {"low": factor.low, "high": factor.high, "kind": str(factor.kind)}
    values |= {f"seeds {name}": getattr(factor.seeds, name, None) for name in SPREAD}
    return [(Column(f"{measure}: {name}", shown=False), Cell(value)) for name, value in values.items()]


def how(factor: Factor) -> str:
    """How a factor is known, in words."""
    words = str(factor.kind)
    if factor.is_reached and factor.num_seeds > 1:
        words += f", {factor.seeds.count if factor.seeds else 0} of {factor.num_seeds} seeds reach it"
    return "; ".join([words, *factor.notes])


def _expected(name: str, key: str, expected: dict[str, Any]) -> list[Entry]:
    """What the recipe expects, if it expects any such thing."""
    table = expected.get(key)
    if not isinstance(table, dict):
        return []
    title = TITLES.get(key) or f"expected {describe_metric(key).title}"
    column = Column(title, about=f"by {expected.get('source', 'the recipe')}")
    return [(column, _expected_cell(table.get(name), is_ratio=key in TITLES))]


def _expected_cell(value: Any, *, is_ratio: bool) -> Cell:
    middle = expected_value(value)
    if middle is None:
        return Cell(None if value is None else str(value))
    low, high = value if isinstance(value, list | tuple) else (value, value)
    if is_ratio:
        return Cell(middle, format_range(float(low), float(high)))
    return Cell(middle, f"{low:.4f}" if low == high else f"{low:.4f}–{high:.4f}")


def ledger_table(group: Group) -> Table:
    """All tables of the run of the lowest seed; seeds have equal sizes."""
    columns = [*(Column(name, is_text=True) for name in LEDGER_WORDS), *(Column(name) for name in LEDGER_NUMBERS)]
    rows = [
        [Cell(budget.series), Cell(budget.label), *cells]
        for budget in group.budgets
        for cells in ledger_rows(budget.first.tables)
    ]
    return Table(f"{group.slug}-ledger", "Memory ledger", columns, rows)


def ledger_rows(tables: Sequence[Footprint]) -> list[list[Cell]]:
    """A line for each table, the largest first, and one for all of them; none without tables."""
    if not tables:
        return []
    ordered = sorted(tables, key=lambda table: -table.full_params)
    return [_row(table) for table in (*ordered, Footprints(tuple(tables)).total)]


def _row(table: Footprint) -> list[Cell]:
    return [
        Cell(table.name),
        Cell(table.method),
        *(Cell(count, f"{count:,}") for count in (table.num_embeddings, table.num_params)),
        *(
            Cell(nbytes, format_bytes(nbytes))
            for nbytes in (
                *(table.codebook_nbytes, table.pointer_nbytes, table.gradient_nbytes),
                *(table.optimizer_nbytes, table.codes_nbytes, table.clustering_nbytes),
            )
        ),
        ratio_cell(table.full_nbytes, table.nbytes),
        ratio_cell(table.full_params, table.num_params),
    ]


def live_table(group: Group) -> Table:
    """A line for each run that is not finished."""
    columns = [Column("run", is_text=True), Column("method", is_text=True), Column("budget", is_text=True)]
    columns += [Column(name) for name in ("seed", "step", "train loss", f"validation {group.leading.title}", "idle")]
    columns.append(Column("state", is_text=True))
    rows = []
    for run in group.live:
        losses = [line["loss"] for line in run.of_kind("train") if line.get("loss") is not None]
        name = group.leading.name
        scores = [line[name] for line in run.of_kind("validation") if line.get(name) is not None]
        words = [Cell(run.name), Cell(str(run.config.get("method", ""))), Cell(budget_words(run.config))]
        counts = [Cell(run.config.get("seed", 0)), Cell(run.step, f"{run.step:,}")]
        last = [Cell(found[-1], f"{found[-1]:.4f}") if found else Cell(None) for found in (losses, scores)]
        state = run.failure or ("under way" if run.is_running else "silent")
        rows.append([*words, *counts, *last, Cell(run.idle, f"{run.idle:,.0f} s"), Cell(state)])
    return Table("live", "Not finished", columns, rows)


def environment_table(records: Iterable[RunRecord]) -> Table:
    """A line for each environment that runs ran in, with the number of runs."""
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for record in records:
        machine = tuple((str(name), "" if value is None else str(value)) for name, value in record.environment.items())
        found[machine] = found.get(machine, 0) + 1
    names = list(dict.fromkeys(name for machine in found for name, _ in machine))
    columns = [Column("runs"), *(Column(name, is_text=True) for name in names)]
    rows = [[Cell(count), *(Cell(dict(machine).get(name, "")) for name in names)] for machine, count in found.items()]
    return Table("environment", "Environment", columns, rows)
