"""The tables of a run before there is one: what `cce plan` shows and a sweep counts. Nothing is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cce.collection import plan_tables
from cce.embeddings import METHODS
from cce.footprint import Footprint, Footprints
from cce.training.resolving import DataSizes, resolve, table_arguments

if TYPE_CHECKING:
    from torch import Tensor

    from cce.training.config import TrainConfig

ROW_STATE_NBYTES = 4  # of an id with an int8 row, besides its values


@dataclass(frozen=True)
class RunPlan:
    """The tables of a run, and what makes them: arguments of the method's class, rounds of refits."""

    tables: Footprints
    options: dict[str, Any]
    refits: int = 0
    min_count: int = 0  # occurrences after which an id has a row; 0 where none are earned


def plan_run(
    config: TrainConfig, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor] | None = None
) -> RunPlan:
    """The tables of a run on features of these vocabulary sizes, as it would make them.

    counts: how often each id of each feature occurs in training, as `count_ids` has it. Without them every id has a
        row.
    """
    resolved = resolve(config, DataSizes(vocabularies, counts=None if counts is None else lambda: counts))
    tables = plan_tables(vocabularies, config.embedding_dim, **table_arguments(resolved) | {"budget": resolved.budget})
    options = resolved.table_options[resolved.method]
    if resolved.trains_as_rows:
        least = resolved.min_count
        planned = (_with_rows(t, options, counts, least) if t.method == config.method else t for t in tables.tables)
        tables = Footprints(tuple(planned))
    return RunPlan(tables, options, resolved.refits, resolved.min_count)


def _with_rows(
    table: Footprint, options: Mapping[str, Any], counts: Mapping[str, Tensor] | None, least: int
) -> Footprint:
    """What a table holds as int8 rows, and as pointers of the ids that have rows."""
    num_rows = table.num_embeddings if counts is None else int((counts[table.name] >= least).sum())
    kind = METHODS[table.method]
    shapes = kind.shapes(table.num_embeddings, table.embedding_dim, kind.complete_options(options) | table.sizes)
    pointers = replace(shapes, pointers=(num_rows, *shapes.pointers[1:])).pointer_nbytes
    return replace(table, pointer_nbytes=pointers, codes_nbytes=num_rows * (table.embedding_dim + ROW_STATE_NBYTES))
