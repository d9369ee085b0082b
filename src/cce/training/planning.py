"""The tables of a run before there is one: what `cce plan` shows and a sweep counts. Nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from cce.collection import plan_tables
from cce.embeddings import METHODS
from cce.footprint import Footprint, Footprints
from cce.training.building import (
    complete_config,
    method_defaults,
    method_options,
    num_refits,
    table_arguments,
    trains_as_rows,
    with_budget,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    config: TrainConfig,
    vocabularies: Mapping[str, int],
    counts: Mapping[str, Tensor] | None = None,
    *,
    power: float = 0.5,
) -> RunPlan:
    """The tables that `cce train` makes for this configuration.

    counts: by feature, how often each id occurs in training, as `count_ids` has it. Without them every id has a row.
    power: that of `Budget`, which a run does not change.
    """
    config = with_budget(config)
    budget = replace(config.budget, power=power)  # or say first that it is wrong
    config = _completed(config, vocabularies, counts)
    given = config.method_options
    settings = {"settings": given["settings"]} if "settings" in given else {}  # no size depends on them
    config = replace(config, method_options={name: value for name, value in given.items() if name not in settings})
    arguments = table_arguments(config) | {"budget": budget}
    itemsize = getattr(torch, config.codebook_dtype).itemsize
    tables = plan_tables(vocabularies, config.embedding_dim, **arguments, itemsize=itemsize)
    options, least = method_options(config), 0
    if trains_as_rows(config):
        least = config.min_count or method_defaults(config).min_count or 1
        planned = (_with_rows(t, options, counts, least) if t.method == config.method else t for t in tables.tables)
        tables = Footprints(tuple(planned))
    return RunPlan(tables, options | settings, num_refits(config), least)


def _with_rows(
    table: Footprint, options: Mapping[str, Any], counts: Mapping[str, Tensor] | None, least: int
) -> Footprint:
    """What a table holds as int8 rows, and as pointers of the ids that have rows."""
    num_rows = table.num_embeddings if counts is None else int((counts[table.name] >= least).sum())
    kind = METHODS[table.method]
    shapes = kind.shapes(table.num_embeddings, table.embedding_dim, kind.complete_options(options) | table.sizes)
    pointers = replace(shapes, pointers=(num_rows, *shapes.pointers[1:])).pointer_nbytes
    return replace(table, pointer_nbytes=pointers, codes_nbytes=num_rows * (table.embedding_dim + ROW_STATE_NBYTES))


def _completed(
    config: TrainConfig, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor] | None
) -> TrainConfig:
    return complete_config(config, vocabularies, None if counts is None else lambda: counts)
