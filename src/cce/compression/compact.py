"""`finalize`: tables that have trained as int8 rows become pointers and codebooks, all or none, in place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from cce.checks import check_choice, check_type
from cce.distributed import broadcast, current_ranks
from cce.embeddings import Compact, Finalizable
from cce.indexing import make_generator
from cce.signals import uninterrupted
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor


@dataclass(frozen=True)
class FinalizedTable:
    """What became of one table."""

    name: str
    num_ids: int  # with a row
    before: int  # bytes
    after: int  # bytes
    distortion: float  # mean squared error of a value, weighted by how often ids occurred


@dataclass(frozen=True)
class Finalized:
    """What became of the tables of a model."""

    tables: tuple[FinalizedTable, ...]

    @property
    def before(self) -> int:
        """Bytes of these tables as int8 rows."""
        return sum(table.before for table in self.tables)

    @property
    def nbytes(self) -> int:
        """Bytes of these tables now."""
        return sum(table.after for table in self.tables)

    def __str__(self) -> str:
        """A table."""
        if not self.tables:
            return "no table trains as int8 rows: nothing to finalize"
        lines = [
            [
                table.name,
                f"{table.num_ids:,}",
                *map(format_bytes, (table.before, table.after)),
                f"{table.distortion:.3g}",
            ]
            for table in self.tables
        ]
        lines.append(["in all", "", format_bytes(self.before), format_bytes(self.nbytes), ""])
        return format_table(["table", "ids with a row", "int8 rows", "compact", "squared error"], lines)


def finalize(
    model: nn.Module,
    *,
    num_columns: int | None = None,
    num_rows: int | None = None,
    counts: Mapping[str, Tensor] | None = None,
    seed: int | None = None,
) -> Finalized:
    """Turn every table of int8 rows of `model` into pointers and codebooks, in place; all of them, or none.

    Rows are clustered as they are now: load the weights of the best epoch first. Ids count by how often they occurred
    in training. Tables that are final already stay as they are. Parameters and their names are the same before and
    after; codebooks go on to train if the model does, and pointers stay.

    num_columns, num_rows: of the codebooks; by default those of the table, 4 columns of 256 rows: 4 bytes an id.
    counts: by name of a table, how often each id occurs, instead of the tables' own counts.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_type("counts", counts, (Mapping, type(None)), "a dictionary by name of a table")
    tables = {name: table for name, table in model.named_modules() if isinstance(table, Finalizable)}
    for name in counts or {}:
        check_choice("a name in counts", name, tables)
    open_tables = {name: table for name, table in tables.items() if not table.is_final}
    for name, table in open_tables.items():
        table.rows.name = f"table {name!r}" if name else table.rows.name
    with _resized(open_tables.values(), num_columns, num_rows):
        staged = _stage_on_rank_0(open_tables, counts or {}, seed)
    report = []
    with uninterrupted():
        for name, table in open_tables.items():
            before, num_ids = table.nbytes, table.rows.num_rows - 1
            table.become(staged[name])
            report.append(FinalizedTable(name, num_ids, before, table.nbytes, staged[name].distortion))
    return Finalized(tuple(report))


@contextmanager
def _resized(tables: Iterable[Finalizable], num_columns: int | None, num_rows: int | None) -> Iterator[None]:
    """Let tables have other sizes of the compact form; those that they had, if the block fails."""
    before = [(table, table.num_columns, table.num_rows) for table in tables]
    try:
        for table, _, _ in before:
            table.resize(num_columns=num_columns, num_rows=num_rows)
        yield
    except BaseException:
        for table, columns, rows in before:
            table.resize(num_columns=columns, num_rows=rows)
        raise


def _stage_on_rank_0(
    tables: Mapping[str, Finalizable], counts: Mapping[str, Tensor], seed: int | None
) -> dict[str, Compact]:
    """The compact form of every table, equal on all processes: the first computes it, and all fail if it does."""
    ranks = current_ranks()
    found: dict[str, Compact] = {}
    problem = ""
    if ranks.is_main:
        generator = make_generator(0 if seed is None else seed)
        try:
            found = {name: table.stage(counts=counts.get(name), generator=generator) for name, table in tables.items()}
        except ValueError as error:
            problem = str(error)
    if ranks.world_size > 1:
        states, problem = broadcast(({name: each.state() for name, each in found.items()}, problem), ranks)
        found = {name: Compact.of(state) for name, state in states.items()}
    if problem:
        raise ValueError(problem)
    return found
