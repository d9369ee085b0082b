"""The runs of a recipe: one for each series, budget and seed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cce.collection.plan import plan_tables
from cce.training.config import TrainConfig, make_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cce.experiments.recipe import Recipe


@dataclass(frozen=True)
class Run:
    """One training run, named after what it is."""

    name: str
    series: str
    config: TrainConfig
    num_params: int  # of all tables
    source: str | None = None  # the run that it starts from

    def placed(self, folder: Path) -> Run:
        """The same, with the folder of the run that it starts from."""
        if self.source is None:
            return self
        return replace(self, config=replace(self.config, start_from=str(folder / self.source)))


def list_runs(recipe: Recipe, data: Path, vocabularies: Mapping[str, int]) -> list[Run]:
    """All runs, those that others start from first, then by seed, so that a sweep cut short is a sweep of fewer seeds.

    A budget below a method's smallest table gives that table; of several budgets that give the same tables, one is run.
    """
    runs = [run for seed in recipe.seeds for run in _runs_of_seed(recipe, str(data), vocabularies, seed)]
    sources = {run.source for run in runs}
    return sorted(runs, key=lambda run: run.name not in sources)


def _runs_of_seed(recipe: Recipe, data: str, vocabularies: Mapping[str, int], seed: int) -> list[Run]:
    runs = []
    for series, own in recipe.all_series().items():
        sizes: set[int] = set()
        is_full = own["method"] == "full"
        for cap in (None,) if is_full else own.get("caps", recipe.caps):
            run = _run(recipe, series, own, vocabularies, {"data": data, "seed": seed, "cap": cap})
            if run.num_params not in sizes:
                runs.append(run)
            sizes.add(run.num_params)
    return runs


def _run(
    recipe: Recipe, series: str, own: dict[str, Any], vocabularies: Mapping[str, int], values: dict[str, Any]
) -> Run:
    source = own.get("start_from")
    options = {name: value for name, value in own.items() if name not in ("caps", "start_from")}
    if source is not None:
        values["start_from"] = _name(source, None, values["seed"])
    config = make_config(recipe.train | options | {name: value for name, value in values.items() if value is not None})
    name = _name(series, values["cap"], values["seed"])
    return Run(name, series, config, _num_params(config, vocabularies), values.get("start_from"))


def _name(series: str, cap: int | None, seed: int) -> str:
    budget = "" if cap is None else f"-cap{cap}"
    return f"{re.sub(r'[^a-z0-9.]+', '-', series.lower()).strip('-')}{budget}-seed{seed}"


def _num_params(config: TrainConfig, vocabularies: Mapping[str, int]) -> int:
    options = {config.method: {k: v for k, v in config.method_options.items() if k != "settings"}}
    cap = None if config.method == "full" else config.cap
    return plan_tables(vocabularies, config.embedding_dim, method=config.method, options=options, cap=cap).num_params
