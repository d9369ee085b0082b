"""Tuning: for each series and budget, which learning rate, weight decay and start score best on validation rows.

Successive halving (Jamieson and Talwalkar 2016): all candidates train for a few epochs, one in `factor` of them for
more, and the best of the last ones is chosen. Trials never score the test rows.

OUT/tuned.json        the choices, with all trials, and checksums of what they were chosen for
OUT/tune/             the trials, as the runs of a sweep
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cce.evaluation import DEFAULT_BEST_BY, describe_metric
from cce.files import write_atomic
from cce.records import RunRecord, parse_strict_json, strict_json
from cce.run_folder import TRIALS, TUNED
from cce.training import make_config, plan_run
from cce_lab.sweeps.recipe import Recipe, file_name
from cce_lab.sweeps.running import Sweep
from cce_lab.sweeps.runs import Run

if TYPE_CHECKING:
    from cce.data import PreparedData

VERSION = 1  # of the file
DIVERGED = "DivergedError"  # a learning rate too high: a trial like any other, the worst of them
LEAST_SURVIVORS = 2  # of a round that is followed by another: with one there would be nothing to decide
Options = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """The options that one series runs with near one budget, and all that were tried for it."""

    series: str
    cap: int | None
    options: Options
    metric: str
    score: float  # the best validation, mean over seeds
    epochs: int  # of the runs that decided
    recipe: str  # checksum of what the recipe says about the series
    trials: list[dict[str, Any]]


@dataclass(frozen=True)
class Choices:
    """All choices of a recipe on one data set."""

    data: str  # its checksum
    choices: tuple[Choice, ...] = field(default=())

    def options_for(self, series: str, cap: int | None) -> Options:
        """The options chosen at the budget nearest by ratio; none for a series that is not tuned."""
        mine = [choice for choice in self.choices if choice.series == series]
        if not mine:
            return {}
        return min(mine, key=lambda choice: abs(math.log((choice.cap or 1) / (cap or 1)))).options

    def check(self, recipe: Recipe, data: str, where: Path) -> None:
        """Reject choices that were made for other data or for another recipe."""
        if self.data != data:
            raise ValueError(f"{where} must be of this data set, got choices made on another: run `cce tune` again.")
        every = recipe.all_series()
        for choice in self.choices:
            if choice.series in every and choice.recipe != recipe_checksum(recipe, choice.series):
                what = f"a choice for {choice.series!r} made with another [train], [series] or [tune]"
                raise ValueError(f"{where} must be of this recipe, got {what}: run `cce tune` again.")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return {"version": VERSION, "data": self.data, "choices": [asdict(choice) for choice in self.choices]}

    def write(self, out: Path) -> None:
        """Write the file of a sweep's folder, whole or not at all."""
        write_atomic(out / TUNED, json.dumps(json.loads(strict_json(self.to_dict())), indent=1) + "\n")

    @classmethod
    def read(cls, out: Path) -> Choices | None:
        """The choices in a sweep's folder; None if there are none. A damaged file is rejected."""
        path = out / TUNED
        if not path.exists():
            return None
        try:
            values = parse_strict_json(path.read_text(encoding="utf-8"))
            if values["version"] != VERSION:
                raise ValueError(f"version must be {VERSION}, got {values['version']!r}.")
            return cls(values["data"], tuple(Choice(**each) for each in values["choices"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} must be as `cce tune` wrote it: {error}") from error


def tuned_series(recipe: Recipe, only: Iterable[str] | None = None) -> list[str]:
    """The series that are tuned: all but those that start from another's run, which have nothing to choose."""
    every = recipe.all_series()
    return [name for name in (every if only is None else only) if "start_from" not in every.get(name, {})]


def recipe_checksum(recipe: Recipe, series: str) -> str:
    """SHA-256 of all that a recipe says about how one series is trained and tuned; not of seeds and caps to sweep."""
    own = {name: value for name, value in recipe.all_series()[series].items() if name != "caps"}
    grid = None if recipe.tune is None else asdict(recipe.tune.of_series(series))
    return _checksum({"train": recipe.train, "series": own, "tune": grid})


def data_checksum(data: PreparedData) -> str:
    """SHA-256 of the checksums of a data set's files and of its schema; its folder may be moved."""
    return _checksum({"files": data.manifest["files"], "schema": data.manifest["schema"]})


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass
class TuningStudy:
    """The candidates of one series at one budget: all of them at first, the best one in the end."""

    series: str
    cap: int | None
    metric: str
    rungs: tuple[int, ...]  # epochs of each round
    candidates: list[Options]
    seeds: tuple[int, ...] = (0,)
    factor: int = 3
    trials: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._num_candidates = len(self.candidates)

    def candidates_of(self, rung: int) -> list[Options]:
        """Those of a round; before the rounds ahead of it are done, the first ones stand for the survivors."""
        count = self._num_candidates
        for _ in range(rung):
            count = min(count, max(LEAST_SURVIVORS, math.ceil(count / self.factor)))
        return self.candidates[: count if rung < len(self.rungs) else 1]

    def name(self, rung: int, options: Options, seed: int) -> str:
        """The name of a trial, by what it is."""
        budget = "" if self.cap is None else f"-cap{self.cap}"
        values = "".join(f"-{name.replace('_', '')}{value}" for name, value in options.items())
        return f"{file_name(self.series)}{budget}{values}-epochs{self.rungs[rung]}-seed{seed}"

    def take(self, rung: int, records: Mapping[str, RunRecord]) -> None:
        """Rank the candidates of a round by the mean of their best validations over seeds, and keep the best."""
        losses = []
        for options in self.candidates:
            found = [records.get(self.name(rung, options, seed)) for seed in self.seeds]
            scores = [best_validation(record, self.metric) if record else math.nan for record in found]
            finite = [score if math.isfinite(score) else None for score in (fmean(scores), *scores)]
            trial = {"score": finite[0], "seeds": list(self.seeds), "scores": finite[1:]}
            self.trials.append({"epochs": self.rungs[rung], "options": options, **trial})
            losses.append(math.inf if finite[0] is None else describe_metric(self.metric).loss(finite[0]))
        order = sorted(range(len(losses)), key=lambda index: losses[index])  # stable: of equals the first
        if math.isinf(losses[order[0]]):
            rates = dict.fromkeys(trial["options"].get("lr") for trial in self.trials)
            tried = ", ".join(f"{rate:g}" for rate in rates if rate is not None) or "that of the series only"
            raise ValueError(f"all trials of {self.series!r} diverged: [tune] must have a lower lr, got {tried}.")
        self.candidates = [self.candidates[index] for index in order]
        self.candidates = self.candidates_of(rung + 1)


class Tuning:
    """The tuning studies of a recipe in the folder `out` of its sweep. Finished trials are not run again.

    only: series to tune; without it, all that can be.
    """

    def __init__(self, recipe: Recipe, data: PreparedData, out: Path, *, only: Collection[str] | None = None) -> None:
        if recipe.tune is None:
            raise ValueError("recipe must have [tune], which says what to try, got none.")
        known = ", ".join(recipe.all_series())
        for name in only or ():
            if name not in recipe.all_series():
                raise ValueError(f"only must name series of the recipe ({known}), got {name!r}.")
        if "validation" not in data.splits:
            raise ValueError(f"data must have validation rows to tune on, got {', '.join(data.splits)} only.")
        self.recipe, self.data, self.out = recipe, data, out
        self.studies: list[TuningStudy] = []
        for name in tuned_series(recipe, only):
            grid, options, caps = recipe.tune.of_series(name), recipe.options_of(name), recipe.caps_of(name)
            axes = grid.axes(recipe.all_series()[name])
            candidates = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
            rungs, metric = grid.rungs(options.get("epochs", 1)), options.get("best_by", DEFAULT_BEST_BY)
            wanted: list[int | None] = [cap for cap in caps if cap in grid.caps]
            for cap in wanted or [caps[len(caps) // 2]]:
                self.studies.append(TuningStudy(name, cap, metric, rungs, candidates, grid.seeds, grid.factor))
        if not self.studies:
            raise ValueError("recipe must have a series that does not start from another, got none to tune.")

    def run(self, *, jobs: int = 1, engine: str = "local", progress: bool = False) -> Choices:
        """Run all rounds, and write what was chosen."""
        for rung in range(max(len(study.rungs) for study in self.studies)):
            under_way = [study for study in self.studies if rung < len(study.rungs)]
            runs = [run for study in under_way for run in self._runs(study, rung)]
            outcome = Sweep(runs, self.out / TRIALS).run(jobs=jobs, engine=engine, progress=progress)
            failures = [f"{name}: {why}" for name, why in outcome.failures.items() if not why.startswith(DIVERGED)]
            if failures:
                what = f"{len(failures)} of {len(runs)} trials failed"
                raise ValueError(f"{what}, see their error.txt: {'; '.join(failures)}")
            records = {record.name: record for record in outcome.records}
            for study in under_way:
                study.take(rung, records)
        return self._write()

    def planned(self) -> Sweep:
        """All trials, where those of later rounds stand for the survivors; for a dry run."""
        runs = [
            replace(run, series=f"{study.series}, {study.rungs[rung]} epochs")
            for study in self.studies
            for rung in range(len(study.rungs))
            for run in self._runs(study, rung)
        ]
        return Sweep(runs, self.out / TRIALS)

    def _runs(self, study: TuningStudy, rung: int) -> list[Run]:
        runs = []
        for options, seed in product(study.candidates_of(rung), study.seeds):
            fixed = {"data": str(self.data.path), "seed": seed, "epochs": study.rungs[rung], "test": False}
            fixed |= {"plugins": list(self.recipe.plugins), **({} if study.cap is None else {"cap": study.cap})}
            config = make_config(self.recipe.options_of(study.series) | options | fixed)
            num_params = plan_run(config, self.data.schema.vocabulary_sizes).tables.num_params
            series = f"{study.series}, {label(options)}"
            runs.append(Run(study.name(rung, options, seed), series, config, num_params))
        return runs

    def _write(self) -> Choices:
        """Add the choices to those of other series in the folder, if these were made on the same data."""
        checksum, found = data_checksum(self.data), []
        for study in self.studies:
            options = study.candidates[0]
            last = next(trial for trial in reversed(study.trials) if trial["options"] == options)
            made_for = recipe_checksum(self.recipe, study.series)
            decided = (last["score"], last["epochs"], made_for, study.trials)
            found.append(Choice(study.series, study.cap, options, study.metric, *decided))
        before = Choices.read(self.out)
        if before is not None and before.data == checksum:
            tuned = {choice.series for choice in found}
            found = [*(choice for choice in before.choices if choice.series not in tuned), *found]
        choices = Choices(checksum, tuple(found))
        choices.write(self.out)
        return choices


def best_validation(record: RunRecord, metric: str) -> float:
    """The best validation score of a run; NaN without one."""
    scores = [line[metric] for line in record.curve if math.isfinite(line.get(metric, math.nan))]
    return min(scores, key=describe_metric(metric).loss, default=math.nan)


def label(options: Options) -> str:
    """`lr 0.01, weight decay 0, start dlrm`."""
    words = {"lr": "lr {:g}", "weight_decay": "weight decay {:g}", "start_scale": "start {}"}
    return ", ".join(words[name].format(value) for name, value in options.items()) or "as in the recipe"
