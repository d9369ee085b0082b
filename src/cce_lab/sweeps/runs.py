"""The runs of a recipe, one for each series, budget and seed; each is begun, resumed, or found to be finished.

`[tune]`: for each series, which learning rate, weight decay and start score best on validation rows. Every combination
is a trial, a run in OUT/tune that never scores the test rows; the best one's options are the sweep's.
"""

from __future__ import annotations

import math
import shutil
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cce.budget import MEASURES, SIZED_LATER, BudgetTooSmallError
from cce.data import PreparedData
from cce.evaluation import describe_metric
from cce.files import write_atomic
from cce.plugins import load_plugins
from cce.records import RunRecord
from cce.run_folder import RunFolder
from cce.training import TrainConfig, Trainer, finalize_run, make_config, plan_run
from cce_lab.sweeps.recipe import AXES, CHOSEN_LATER, Recipe, file_name

Choices: TypeAlias = Mapping[tuple[str, int | None], dict[str, Any]]  # by series and budget: tuned options


@dataclass(frozen=True)
class Run:
    """One training run, named after what it is."""

    name: str
    series: str
    config: TrainConfig
    num_params: int  # of all tables
    source: str | None = None  # the run that it starts from
    shares_training: bool = False  # with its source: it differs in the size that is chosen after training

    def placed(self, folder: Path) -> Run:
        """The same, with the folder of the run that it starts from."""
        if self.source is None or self.shares_training:
            return self
        return replace(self, config=replace(self.config, start_from=str(folder / self.source)))


def list_runs(
    recipe: Recipe, data: Path, vocabularies: Mapping[str, int], *, choices: Choices | None = None
) -> list[Run]:
    """All runs, those that others start from first, then by seed, so that a sweep cut short is a sweep of fewer seeds.

    choices: what [tune] chose for each series; without them, all have the options of the recipe.
    A budget below a method's smallest table gives that table; of several budgets that give the same tables, one is run.
    Of runs that differ only in the size that is chosen after training the first is trained, and the others share it.
    """
    runs: dict[tuple[Any, ...], Run] = {}
    for seed, series in product(recipe.seeds, recipe.all_series()):
        for cap, size in product(recipe.caps_of(series), recipe.sizes_of(series)):
            chosen = _nearest(choices or {}, series, cap)
            values = {"data": str(data), "seed": seed, "cap": cap}
            run = _run(recipe, series, vocabularies, chosen | values, size)
            runs.setdefault((seed, series, run.num_params, *size.values()), run)
    found = _share_trainings(runs.values())
    names, sources = {run.name for run in found}, {run.source for run in found}
    for run in found:
        if run.source is not None and run.source not in names:
            raise ValueError(f"start_from of {run.series!r} needs a run {run.source}, but its series has no such cap.")
    return sorted(found, key=lambda run: run.name not in sources)


def _nearest(choices: Choices, series: str, cap: int | None) -> dict[str, Any]:
    """The options chosen at the budget nearest by ratio; none for a series that is not tuned."""
    mine = {near: options for (name, near), options in choices.items() if name == series}
    return mine[min(mine, key=lambda near: abs(math.log((near or 1) / (cap or 1))))] if mine else {}


def _share_trainings(runs: Iterable[Run]) -> list[Run]:
    """The runs, of which those that an earlier one has trained already name it as their source."""
    found: list[Run] = []
    trained: dict[str, str] = {}  # options without the size → the run that trains with them
    for run in runs:
        options = asdict(run.config)
        is_open = not any(options[name] is not None for name in MEASURES if name not in CHOSEN_LATER)
        if is_open and run.config.method in SIZED_LATER and run.source is None:
            first = trained.setdefault(repr(options | dict.fromkeys(CHOSEN_LATER)), run.name)
            run = run if first == run.name else replace(run, source=first, shares_training=True)  # noqa: PLW2901
        found.append(run)
    return found


def _run(
    recipe: Recipe, series: str, vocabularies: Mapping[str, int], values: dict[str, Any], own: dict[str, Any]
) -> Run:
    """The run of a series with these values; `own`, the size of its tables or what a trial tries, is in its name."""
    cap, seed = values["cap"], values["seed"]
    if (source := recipe.all_series()[series].get("start_from")) is not None:
        values["start_from"] = _name(source, None if recipe.caps_of(source) == (None,) else cap, seed)
    values["plugins"] = list(recipe.plugins)
    given = {name: value for name, value in values.items() if value is not None}
    config = make_config(recipe.options_of(series) | own | given)
    try:
        num_params = plan_run(config, vocabularies).tables.num_params
    except BudgetTooSmallError as error:
        config = replace(config, cap=error.least)
        num_params = plan_run(config, vocabularies).tables.num_params
    return Run(_name(series, cap, seed, own), series, config, num_params, values.get("start_from"))


def _name(series: str, cap: int | None, seed: int, own: Mapping[str, Any] | None = None) -> str:
    values = {**({} if cap is None else {"cap": cap}), **(own or {}), "seed": seed}
    return "-".join([file_name(series), *(f"{name.replace('_', '')}{value}" for name, value in values.items())])


@dataclass(frozen=True)
class Task:
    """A run and its folder."""

    run: Run
    folder: RunFolder
    is_source: bool = False  # others start from it: its checkpoints stay


def run_one(task: Task) -> str | None:
    """Train one run to its end, or resume it; why it failed, or None if it is finished.

    Other processes may be asked to do the same run: who comes second waits.
    """
    load_plugins(task.run.config.plugins)  # this may be a process of its own
    with task.folder.lock(wait=True):
        if task.folder.is_finished:
            return None
        if task.run.source is not None:
            source = RunFolder(task.folder.path.with_name(task.run.source))
            with source.lock(wait=True):
                if not source.is_finished:
                    return f"{task.run.source}, which it starts from, is not finished."
        return _train(task)


def _train(task: Task) -> str | None:
    is_stopped = False
    try:
        if task.run.shares_training:
            _finalize(task)
        else:
            trainer = _trainer(task.run.config, task.folder)
            trainer.run(name=task.run.name, series=task.run.series)
            is_stopped = trainer.stop_request.is_set
    except Exception as error:  # noqa: BLE001 - the other runs continue
        write_atomic(task.folder.error, traceback.format_exc())
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    task.folder.error.unlink(missing_ok=True)
    if not task.is_source:
        shutil.rmtree(task.folder.checkpoints, ignore_errors=True)  # nothing is left to resume
    if is_stopped:
        raise KeyboardInterrupt  # it came when the run was done: no other is to begin
    return None


def _finalize(task: Task) -> None:
    """Finalize the training of another run at this run's size: in a copy, so that a kill leaves either run or none."""
    run, config = task.run, task.run.config
    assert run.source is not None
    copied = RunFolder(task.folder.checkpoints / "of-source")  # where nobody looks for runs
    shutil.rmtree(copied.path, ignore_errors=True)
    shutil.copytree(task.folder.path.with_name(run.source), copied.path)
    sizes = {name: getattr(config, name) for name in CHOSEN_LATER}
    record = finalize_run(copied.path, **sizes, refits=config.refits, model=config.model)
    for path in (copied.config, copied.log):
        path.replace(task.folder.path / path.name)
    if task.is_source:
        for path in copied.checkpoints.iterdir():
            path.replace(task.folder.checkpoints / path.name)
    shutil.rmtree(copied.path)
    task.folder.write_record(replace(record, name=run.name, series=run.series, trained_as=run.source))


def _trainer(config: TrainConfig, folder: RunFolder) -> Trainer:
    if not folder.is_begun:
        return Trainer(config, folder.path, lock=False)
    moved: dict[str, Any] = {"model": config.model, "plugins": config.plugins}
    if config.start_from is not None:
        moved["start_from"] = config.start_from
    return Trainer.resume(folder.path, lock=False, threads=config.threads, **moved)


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
            fixed = {"data": str(data.path), "seed": recipe.seeds[0], "cap": cap, "test": False}
            run = _run(recipe, series, data.schema.vocabulary_sizes, fixed, options)
            found.append(Trial(cap, options, run))
    return found


def choose(trials: Iterable[Trial], records: Iterable[RunRecord], failures: Mapping[str, str]) -> Choices:
    """The options of the best trial of each series and budget; of equals the first."""
    wrong = [f"{name}: {why}" for name, why in failures.items() if not why.startswith(DIVERGED)]
    if wrong:
        raise ValueError(f"{len(wrong)} trials failed, see their error.txt: {'; '.join(wrong)}")
    by_name = {record.name: record for record in records}
    best: dict[tuple[str, int | None], tuple[float, dict[str, Any]]] = {}
    for cap, options, run in trials:
        loss = best_loss(by_name.get(run.name), run.config.metrics[0])
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
