"""Compression factors by all four measures, beside what the recipe expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.report.compression_factor import Factor, format_range
from cce.report.groups import FULL, MEASURES
from cce.report.tables import Cell, Column, Table
from cce.text import format_ratio

if TYPE_CHECKING:
    from cce.report.groups import Group

Entry = tuple[Column, Cell]
WORDS = {
    "params": "fewer params",
    "bytes": "fewer bytes",
    "largest params": "largest table: fewer params",
    "largest bytes": "largest table: fewer bytes",
}
EXPECTED = {"params": "compression", "largest params": "largest"}  # measure → the recipe's word
TITLES = {"compression": "expected", "largest": "largest table: expected", "bce": "expected BCE"}
SPREAD = ("least", "mean", "greatest", "low", "high")


def factor_table(group: Group, expected: dict[str, Any]) -> Table:
    """A line for each series but the full table, the greatest factor first."""
    names = [name for name in group.series if name != FULL]
    factors = {name: {measure: group.factor(name, measure) for measure in MEASURES} for name in names}
    names.sort(key=lambda name: (-(factors[name]["params"].value or 0), name))
    entries = [_entries(name, factors[name], expected) for name in names]
    columns = [column for column, _ in entries[0]] if entries else []
    rows = [[cell for _, cell in line] for line in entries]
    return Table(f"{group.slug}-factors", "Compression factors", columns, rows)


def expected_value(value: Any) -> float | None:
    """One number for a number, or for a range of two."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return float((value[0] * value[1]) ** 0.5)
    return float(value) if isinstance(value, int | float) else None


def _entries(name: str, factors: dict[str, Factor], expected: dict[str, Any]) -> list[Entry]:
    """The cells of a line, each with its column; what is for the CSV file only comes last."""
    shown, kept = [(Column("series", is_text=True), Cell(name))], []
    for measure, factor in factors.items():
        about = "times fewer than the full table, where its BCE is reached"
        notes = "; ".join(factor.notes)
        shown.append((Column(WORDS[measure], about=about), Cell(factor.value, str(factor), notes)))
        shown += _expected(name, EXPECTED.get(measure, ""), expected)
        shown += _seeds(factor) if measure == "params" else []
        kept += _for_file(measure, factor)
    bces = _expected(name, "bce", expected)
    return [*shown, *bces, (Column("how", is_text=True), Cell(how(factors["params"]))), *kept]


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
    column = Column(TITLES[key], about=f"by {expected.get('source', 'the recipe')}")
    return [(column, _expected_cell(table.get(name), is_ratio=key != "bce"))]


def _expected_cell(value: Any, *, is_ratio: bool) -> Cell:
    middle = expected_value(value)
    if middle is None:
        return Cell(None if value is None else str(value))
    low, high = value if isinstance(value, list | tuple) else (value, value)
    if is_ratio:
        return Cell(middle, format_range(float(low), float(high)))
    return Cell(middle, f"{low:.4f}" if low == high else f"{low:.4f}–{high:.4f}")
