"""The runs of a recipe: one for each series, budget and seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cce.budget import BudgetTooSmallError
from cce.training import TrainConfig, make_config, plan_run
from cce_lab.sweeps.recipe import file_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cce_lab.sweeps.choices import Choices
    from cce_lab.sweeps.recipe import Recipe


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


def list_runs(
    recipe: Recipe, data: Path, vocabularies: Mapping[str, int], *, choices: Choices | None = None
) -> list[Run]:
    """All runs, those that others start from first, then by seed, so that a sweep cut short is a sweep of fewer seeds.

    choices: what `cce tune` chose for each series; without them, all have the options of the recipe.
    A budget below a method's smallest table gives that table; of several budgets that give the same tables, one is run.
    """
    runs = [run for seed in recipe.seeds for run in _runs_of_seed(recipe, str(data), vocabularies, seed, choices)]
    names, sources = {run.name for run in runs}, {run.source for run in runs}
    for run in runs:
        if run.source is not None and run.source not in names:
            raise ValueError(f"start_from of {run.series!r} needs a run {run.source}, but its series has no such cap.")
    return sorted(runs, key=lambda run: run.name not in sources)


def _runs_of_seed(
    recipe: Recipe, data: str, vocabularies: Mapping[str, int], seed: int, choices: Choices | None
) -> list[Run]:
    runs = []
    for series in recipe.all_series():
        sizes: set[int] = set()
        for cap in recipe.caps_of(series):
            chosen = choices.options_for(series, cap) if choices else {}
            run = _run(recipe, series, vocabularies, chosen | {"data": data, "seed": seed, "cap": cap})
            if run.num_params not in sizes:
                runs.append(run)
            sizes.add(run.num_params)
    return runs


def _run(recipe: Recipe, series: str, vocabularies: Mapping[str, int], values: dict[str, Any]) -> Run:
    own = recipe.all_series()[series]
    cap, seed = values["cap"], values["seed"]
    if (source := own.get("start_from")) is not None:
        values["start_from"] = _name(source, None if recipe.caps_of(source) == (None,) else cap, seed)
    values["plugins"] = list(recipe.plugins)
    config = make_config(
        recipe.options_of(series) | {name: value for name, value in values.items() if value is not None}
    )
    try:
        num_params = plan_run(config, vocabularies).tables.num_params
    except BudgetTooSmallError as error:
        config = replace(config, cap=error.least)
        num_params = plan_run(config, vocabularies).tables.num_params
    return Run(_name(series, cap, seed), series, config, num_params, values.get("start_from"))


def _name(series: str, cap: int | None, seed: int) -> str:
    budget = "" if cap is None else f"-cap{cap}"
    return f"{file_name(series)}{budget}-seed{seed}"
