"""`[tune]` of a recipe: for each series, which learning rate, weight decay and start score best on validation rows.

Every combination is a trial, a run in OUT/tune that never scores the test rows; the best one's options are the sweep's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from cce.evaluation import DEFAULT_BEST_BY, describe_metric
from cce.training import make_config, plan_run
from cce_lab.sweeps.recipe import AXES, Recipe, file_name
from cce_lab.sweeps.runs import Choices, Run

if TYPE_CHECKING:
    from cce.data import PreparedData
    from cce.records import RunRecord

DIVERGED = "DivergedError"  # a learning rate too high: a trial like any other, the worst of them


class Trial(NamedTuple):
    """One run, and the options that it tries for a series at a budget."""

    cap: int | None
    options: dict[str, Any]
    run: Run


def list_trials(recipe: Recipe, data: PreparedData, only: Iterable[str] | None = None) -> list[Trial]:
    """All trials with the first seed; none without [tune]. What starts from another series' run is not tuned."""
    if recipe.tune is None:
        return []
    if "validation" not in data.splits:
        raise ValueError(f"data must have validation rows to tune on, got {', '.join(data.splits)} only.")
    found = []
    for series, own in recipe.all_series().items():
        if "start_from" in own or (only is not None and series not in only):
            continue
        grid, caps = recipe.tune | recipe.tune.get("series", {}).get(series, {}), recipe.caps_of(series)
        axes = {name: grid[name] for name in AXES if name in grid and name not in own}
        here = [cap for cap in caps if cap in grid.get("caps", ())] or [caps[len(caps) // 2]]
        for cap, *values in product(here, *axes.values()):
            options = dict(zip(axes, values, strict=True))
            found.append(Trial(cap, options, _run(recipe, data, series, cap, options)))
    return found


def _run(recipe: Recipe, data: PreparedData, series: str, cap: int | None, options: dict[str, Any]) -> Run:
    fixed = {"data": str(data.path), "seed": recipe.seeds[0], "test": False, "plugins": list(recipe.plugins)}
    fixed |= {} if cap is None else {"cap": cap}
    config = make_config(recipe.options_of(series) | options | fixed)
    words = [] if cap is None else [f"cap{cap}"]
    words += [f"{name.replace('_', '')}{value}" for name, value in options.items()]
    num_params = plan_run(config, data.schema.vocabulary_sizes).tables.num_params
    return Run("-".join([file_name(series), *words, f"seed{config.seed}"]), series, config, num_params)


def choose(trials: Iterable[Trial], records: Iterable[RunRecord], failures: Mapping[str, str]) -> Choices:
    """The options of the best trial of each series and budget; of equals the first."""
    wrong = [f"{name}: {why}" for name, why in failures.items() if not why.startswith(DIVERGED)]
    if wrong:
        raise ValueError(f"{len(wrong)} trials failed, see their error.txt: {'; '.join(wrong)}")
    by_name = {record.name: record for record in records}
    best: dict[tuple[str, int | None], tuple[float, dict[str, Any]]] = {}
    for cap, options, run in trials:
        loss = best_loss(by_name.get(run.name), run.config.best_by or DEFAULT_BEST_BY)
        key = run.series, cap
        if key not in best or loss < best[key][0]:
            best[key] = loss, options
    for (series, _), (loss, _) in best.items():
        if math.isinf(loss):
            raise ValueError(f"all trials of {series!r} diverged: [tune] must have a lower lr.")
    return {key: options for key, (_, options) in best.items()}


def best_loss(record: RunRecord | None, metric: str) -> float:
    """The best validation score of a run, less being better; infinite without one."""
    scores = [line.get(metric, math.nan) for line in record.curve] if record else []
    return min((describe_metric(metric).loss(score) for score in scores if math.isfinite(score)), default=math.inf)
