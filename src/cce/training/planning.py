"""The tables of a run before there is one: what `cce plan` shows and a sweep counts. Nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from cce.collection import plan_tables
from cce.training.building import complete_config, method_options, num_refits, table_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from cce.footprint import Footprints
    from cce.training.config import TrainConfig


@dataclass(frozen=True)
class RunPlan:
    """The tables of a run, and what makes them: arguments of the method's class, and rounds of refits."""

    tables: Footprints
    options: dict[str, Any]
    refits: int


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
    config = _completed(config, vocabularies, counts)
    given = config.method_options
    settings = {"settings": given["settings"]} if "settings" in given else {}  # no size depends on them
    config = replace(config, method_options={name: value for name, value in given.items() if name not in settings})
    arguments = table_arguments(config) | {"budget": replace(config.budget, power=power)}
    sizes = {"all": sum(vocabularies.values())} if config.unified else vocabularies
    itemsize = getattr(torch, config.codebook_dtype).itemsize
    tables = plan_tables(sizes, config.embedding_dim, **arguments, itemsize=itemsize)
    return RunPlan(tables, method_options(config) | settings, num_refits(config))


def default_refits(
    config: TrainConfig, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor] | None = None
) -> int:
    """The rounds of refits of a run that says nothing of them."""
    return num_refits(_completed(replace(config, refits=None), vocabularies, counts))


def _completed(
    config: TrainConfig, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor] | None
) -> TrainConfig:
    return complete_config(config, vocabularies, None if counts is None else lambda: counts)
