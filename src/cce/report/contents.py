"""The tables of a report: summary, compression factors, memory ledger, clusterings, environment."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from cce.report.compression_factor import Factor, Kind, format_range
from cce.report.groups import FULL, MEASURES, Budget, Group
from cce.report.tables import Cell, Column, Table
from cce.text import format_bytes, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cce.records import RunRecord
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
WORDS = {"params": "params", "bytes": "bytes", "largest params": "largest, params", "largest bytes": "largest, bytes"}
LEDGER = ("ids", "params", "codebook", "pointers", "optimizer", "fewer params", "fewer bytes")
FACTS = ("min", "mean", "max", "95% low", "95% high")


def summary_table(group: Group) -> Table:
    """A line for each series and budget."""
    return Table(f"{group.slug}-summary", "Summary", SUMMARY, [_summary_row(group, each) for each in group.budgets])


def _summary_row(group: Group, budget: Budget) -> list[Cell]:
    bce, auc = budget.over_seeds("bce"), budget.over_seeds("auc")
    params, nbytes = budget.size("params") or 0, budget.size("bytes") or 0
    speed, seconds = budget.over_seeds("samples_per_second"), budget.over_seeds("seconds")
    epoch = _best_epoch(budget)
    return [
        Cell(budget.series),
        Cell(budget.label),
        Cell(round(params), f"{params:,.0f}"),
        _ratio(group.full_size("params"), params),
        _ratio(group.full_size("largest params"), budget.size("largest params")),
        Cell(round(nbytes), format_bytes(round(nbytes))),
        _ratio(group.full_size("bytes"), nbytes),
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


def _ratio(full: float | None, size: float | None) -> Cell:
    if not full or not size:
        return Cell(None)
    return Cell(full / size, format_ratio(full / size))


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


# -- compression factors -----------------------------------------------------------------------------------------------


def factor_table(group: Group, expected: dict[str, Any]) -> Table:
    """A line for each series but the full table, by all four measures, beside what was expected."""
    names = [name for name in group.series if name != FULL]
    factors = {name: {measure: group.factor(name, measure) for measure in MEASURES} for name in names}
    names.sort(key=lambda name: -(factors[name]["params"].value or 0))
    rows = [[Cell(name), *_factor_cells(factors[name]), *_expected_cells(name, expected)] for name in names]
    columns = [Column("series", is_text=True)]
    for measure in MEASURES:
        columns += [Column(f"fewer {WORDS[measure]}", about="than the full table, at its BCE")]
        columns += [Column(f"{WORDS[measure]}: {fact}", shown=False) for fact in ("low", "high", "kind")]
        if measure == "params":
            columns += [Column("over seeds", about="geometric mean of the seeds' own factors, least to greatest")]
            columns += [Column("95 % interval", about="of that mean, by Student's t")]
        columns += [Column(f"{WORDS[measure]}: seeds {fact}", shown=False) for fact in FACTS]
    columns += [*_expected_columns(expected), Column("how", is_text=True)]
    rows = [[*row, Cell(_how(factors[row[0].value]["params"]))] for row in rows]
    return Table(f"{group.slug}-factors", "Compression factors", columns, rows)


def _factor_cells(factors: dict[str, Factor]) -> list[Cell]:
    cells = []
    for measure, factor in factors.items():
        about = "; ".join(factor.notes)
        cells += [Cell(factor.value, str(factor), about), Cell(factor.low), Cell(factor.high), Cell(str(factor.kind))]
        seeds = factor.seeds
        if measure == "params":
            ends = "" if seeds is None else format_range(seeds.least, seeds.greatest)
            cells.append(Cell(seeds.mean if seeds else None, f"{format_ratio(seeds.mean)} [{ends}]" if seeds else ""))
            has = seeds is not None and seeds.low is not None and seeds.high is not None
            cells.append(Cell(seeds.low if seeds else None, format_range(seeds.low, seeds.high) if has else ""))  # type: ignore[union-attr, arg-type]
        cells += [Cell(getattr(seeds, name) if seeds else None) for name in ("least", "mean", "greatest", "low", "high")]
    return cells


def _how(factor: Factor) -> str:
    """How the factor is known, in words."""
    words = [str(factor.kind)]
    if factor.is_reached and factor.num_seeds > 1:
        words[0] += f", {factor.seeds.count if factor.seeds else 0} of {factor.num_seeds} seeds reach it"
    return "; ".join([*words, *factor.notes])


EXPECTED = {"compression": "expected", "largest": "expected, largest", "bce": "expected BCE"}


def _expected_columns(expected: dict[str, Any]) -> list[Column]:
    source = str(expected.get("source", "the recipe"))
    return [Column(EXPECTED[key], about=f"by {source}") for key in EXPECTED if isinstance(expected.get(key), dict)]


def _expected_cells(name: str, expected: dict[str, Any]) -> list[Cell]:
    found = []
    for key in EXPECTED:
        if isinstance(table := expected.get(key), dict):
            found.append(_expected_cell(table.get(name), is_ratio=key != "bce"))
    return found


def _expected_cell(value: Any, *, is_ratio: bool) -> Cell:
    """A number, or a range of two."""
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = float(value[0]), float(value[1])
        return Cell((low * high) ** 0.5, format_range(low, high) if is_ratio else f"{low:.4f}–{high:.4f}")
    if isinstance(value, int | float):
        return Cell(float(value), format_ratio(value) if is_ratio else f"{value:.4f}")
    return Cell(None if value is None else str(value))


# -- ledger, environment -----------------------------------------------------------------------------------------------


def ledger_table(group: Group) -> Table:
    """A line for each table of each series and budget: what it weighs."""
    columns = [Column(name, is_text=True) for name in ("series", "budget", "table", "method")]
    columns += [Column(name) for name in LEDGER]
    rows = [[Cell(each.series), Cell(each.label), *cells] for each in group.budgets for cells in ledger_rows(each.first)]
    return Table(f"{group.slug}-ledger", "Memory ledger", columns, rows)


def ledger_rows(record: RunRecord) -> list[list[Cell]]:
    """A line for each table, the largest first, and one for all of them."""
    tables = sorted(record.tables, key=lambda table: -(table.get("full_params") or 0))
    names = ("num_embeddings", "num_params", "codebook_nbytes", "pointer_nbytes", "optimizer_nbytes")
    names += ("full_params", "full_nbytes", "nbytes")
    total = {name: sum(table.get(name) or 0 for table in tables) for name in names} | {"name": "all tables"}
    return [_ledger_row(table) for table in ([*tables, total] if tables else [])]


def _ledger_row(table: dict[str, Any]) -> list[Cell]:
    weights = [table.get(name) or 0 for name in ("codebook_nbytes", "pointer_nbytes", "optimizer_nbytes")]
    return [
        Cell(str(table.get("name", ""))),
        Cell(str(table.get("method", ""))),
        *(Cell(count, f"{count:,}") for count in (table.get("num_embeddings") or 0, table.get("num_params") or 0)),
        *(Cell(weight, format_bytes(weight)) for weight in weights),
        _ratio(table.get("full_params"), table.get("num_params")),
        _ratio(table.get("full_nbytes"), table.get("nbytes")),
    ]


def environment_table(records: Iterable[RunRecord]) -> Table:
    """A column for each environment that runs ran in, with the number of runs."""
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for record in records:
        facts = tuple((str(name), "" if value is None else str(value)) for name, value in record.environment.items())
        found[facts] = found.get(facts, 0) + 1
    names = list(dict.fromkeys(name for facts in found for name, _ in facts))
    columns = [Column("", is_text=True), *(Column(f"environment {i + 1}", is_text=True) for i in range(len(found)))]
    rows = [[Cell("runs"), *(Cell(count) for count in found.values())]]
    rows += [[Cell(name), *(Cell(dict(facts).get(name, "")) for facts in found)] for name in names]
    return Table("environment", "Environment", columns, rows)


def note_of(factor: Factor) -> str:
    """One word for a chart."""
    return "extrapolated" if factor.kind is Kind.EXTRAPOLATED else str(factor.kind)
