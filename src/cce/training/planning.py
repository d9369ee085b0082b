"""The tables of a run before there is one: what `cce plan` shows and a sweep counts. Nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from cce.collection import plan_tables
from cce.embeddings import METHODS
from cce.footprint import Footprint, Footprints
from cce.training.building import code_bits, complete_config, method_options, num_refits, table_arguments, with_budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from cce.training.config import TrainConfig


@dataclass(frozen=True)
class RunPlan:
    """The tables of a run, and what makes them: arguments of the method's class, codes that they train as, refits."""

    tables: Footprints
    options: dict[str, Any]
    refits: int = 0
    code_bits: int = 0


def plan_run(
    config: TrainConfig,
    vocabularies: Mapping[str, int],
    counts: Mapping[str, Tensor] | None = None,
    *,
    power: float = 0.5,
) -> RunPlan:
    """The tables that `cce train` makes for this configuration.

    counts: by feature, how often each id occurs in training, as `count_ids` has it. Without them every id may learn
        pointers, or as many as `Budget` says.
    power: that of `Budget`, which a run does not change.
    """
    config = with_budget(config)
    budget = replace(config.budget, power=power)  # or say first that it is wrong
    config = _completed(config, vocabularies, counts)
    budget = replace(budget, num_learned=config.num_learned or None)
    given = config.method_options
    settings = {"settings": given["settings"]} if "settings" in given else {}  # no size depends on them
    config = replace(config, method_options={name: value for name, value in given.items() if name not in settings})
    arguments = table_arguments(config) | {"budget": budget}
    itemsize = getattr(torch, config.codebook_dtype).itemsize
    tables = plan_tables(vocabularies, config.embedding_dim, **arguments, itemsize=itemsize)
    bits, options = code_bits(config), method_options(config)
    coded = tuple(
        replace(table, codes_nbytes=_codes_nbytes(table, options, bits)) if table.method == config.method else table
        for table in tables.tables
    )
    return RunPlan(Footprints(coded), options | settings, num_refits(config), bits)


def _codes_nbytes(table: Footprint, options: Mapping[str, Any], bits: int) -> int:
    """Bytes of the codes that a table trains as; 0 for none."""
    kind, size = METHODS[table.method], (table.num_embeddings, table.embedding_dim)
    return kind.codes_nbytes(*size, kind.complete_options(options) | table.sizes, bits) if bits else 0


def _completed(
    config: TrainConfig, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor] | None
) -> TrainConfig:
    return complete_config(config, vocabularies, None if counts is None else lambda: counts)
