"""Tuning: for each series and budget, which learning rate, weight decay and start score best on validation rows.

Successive halving (Jamieson and Talwalkar 2016): all candidates train for a few epochs, one in `factor` of them for
more, and the best of the last ones is chosen. Trials never score the test rows.

OUT/tuned.json        the choices, with all trials
OUT/tune/             the trials, as the runs of a sweep
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cce.evaluation import DEFAULT_BEST_BY, describe_metric
from cce.run_folder import TRIALS
from cce.training import make_config, plan_run
from cce_lab.sweeps.choices import Choice, Choices, data_checksum, recipe_checksum, tuned_series
from cce_lab.sweeps.recipe import file_name
from cce_lab.sweeps.running import Sweep
from cce_lab.sweeps.runs import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from cce.data import PreparedData
    from cce.records import RunRecord
    from cce_lab.sweeps.recipe import Recipe
    from cce_lab.sweeps.tune_grid import TuneGrid

DIVERGED = "DivergedError"  # a learning rate too high: a trial like any other, the worst of them
LEAST_SURVIVORS = 2  # of a round that is followed by another: with one there would be nothing to decide
Options = dict[str, Any]


@dataclass
class Contest:
    """The candidates of one series at one budget: all of them at first, the best one in the end."""

    series: str
    cap: int | None
    grid: TuneGrid
    metric: str
    rungs: tuple[int, ...]  # epochs of each round
    candidates: list[Options]
    trials: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._num_candidates = len(self.candidates)

    def candidates_of(self, rung: int) -> list[Options]:
        """Those of a round; before the rounds ahead of it are done, the first ones stand for the survivors."""
        count = self._num_candidates
        for _ in range(rung):
            count = min(count, max(LEAST_SURVIVORS, math.ceil(count / self.grid.factor)))
        return self.candidates[: count if rung < len(self.rungs) else 1]

    def take(self, rung: int, scores: Mapping[str, dict[int, float]]) -> None:
        """Rank the candidates of a round by the mean of their validations over seeds, and keep the best."""
        found = [scores[label(options)] for options in self.candidates]
        means = [fmean(seeds.values()) for seeds in found]
        for options, mean, seeds in zip(self.candidates, means, found, strict=True):
            values = {
                "score": _finite(mean),
                "seeds": list(seeds),
                "scores": [_finite(score) for score in seeds.values()],
            }
            self.trials.append({"epochs": self.rungs[rung], "options": options, **values})
        losses = [describe_metric(self.metric).loss(mean) if math.isfinite(mean) else math.inf for mean in means]
        order = sorted(range(len(losses)), key=lambda index: losses[index])  # stable: of equals the first
        if math.isinf(losses[order[0]]):
            raise ValueError(
                f"all trials of {self.series!r} diverged: [tune] must have a lower lr, got {self._rates()}."
            )
        self.candidates = [self.candidates[index] for index in order]
        self.candidates = self.candidates_of(rung + 1)

    def _rates(self) -> str:
        rates = dict.fromkeys(trial["options"].get("lr") for trial in self.trials)
        return ", ".join(f"{rate:g}" for rate in rates if rate is not None) or "that of the series only"


class Tuning:
    """The contests of a recipe in the folder `out` of its sweep. Finished trials are not run again.

    only: series to tune; without it, all that can be.
    """

    def __init__(self, recipe: Recipe, data: PreparedData, out: Path, *, only: Collection[str] | None = None) -> None:
        for name in only or ():
            if name not in recipe.all_series():
                known = ", ".join(recipe.all_series())
                raise ValueError(f"only must name series of the recipe ({known}), got {name!r}.")
        if "validation" not in data.splits:
            raise ValueError(f"data must have validation rows to tune on, got {', '.join(data.splits)} only.")
        self.recipe, self.data, self.out = recipe, data, out
        self.contests = [self._contest(name, cap) for name in tuned_series(recipe, only) for cap in self._caps(name)]
        if not self.contests:
            raise ValueError("recipe must have a series that does not start from another, got none to tune.")

    def run(self, *, jobs: int = 1, engine: str = "local", progress: bool = False) -> Choices:
        """Run all rounds, and write what was chosen."""
        for rung in range(max(len(contest.rungs) for contest in self.contests)):
            under_way = [contest for contest in self.contests if rung < len(contest.rungs)]
            runs = [run for contest in under_way for run in self._runs(contest, rung)]
            sweep = Sweep(runs, self.out / TRIALS)
            outcome = sweep.run(jobs=jobs, engine=engine, progress=progress)
            _check_failures(outcome.failures, len(runs))
            records = {record.name: record for record in outcome.records}
            for contest in under_way:
                self._score(contest, rung, records)
        return self._write()

    def planned(self) -> Sweep:
        """All trials, where those of later rounds stand for the survivors; for a dry run."""
        runs = [
            replace(run, series=f"{contest.series}, {contest.rungs[rung]} epochs")
            for contest in self.contests
            for rung in range(len(contest.rungs))
            for run in self._runs(contest, rung)
        ]
        return Sweep(runs, self.out / TRIALS)

    def _caps(self, series: str) -> list[int | None]:
        caps = self.recipe.caps_of(series)
        wanted = self.recipe.grid.of_series(series).caps
        return [cap for cap in caps if cap in wanted] or [caps[len(caps) // 2]]

    def _contest(self, series: str, cap: int | None) -> Contest:
        own, grid = self.recipe.all_series()[series], self.recipe.grid.of_series(series)
        options = self.recipe.options_of(series)
        axes = grid.axes(options, own)
        candidates = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        rungs, metric = grid.rungs(options.get("epochs", 1)), options.get("best_by", DEFAULT_BEST_BY)
        return Contest(series, cap, grid, metric, rungs, candidates)

    def _runs(self, contest: Contest, rung: int) -> list[Run]:
        candidates = contest.candidates_of(rung)
        return [self._run(contest, rung, options, seed) for options in candidates for seed in contest.grid.seeds]

    def _run(self, contest: Contest, rung: int, options: Options, seed: int) -> Run:
        fixed = {"data": str(self.data.path), "seed": seed, "cap": contest.cap, "epochs": contest.rungs[rung]}
        given = {name: value for name, value in fixed.items() if value is not None}
        config = make_config(
            self.recipe.options_of(contest.series)
            | options
            | given
            | {"test": False, "plugins": list(self.recipe.plugins)}
        )
        num_params = plan_run(config, self.data.schema.vocabulary_sizes).tables.num_params
        return Run(run_name(contest, rung, options, seed), f"{contest.series}, {label(options)}", config, num_params)

    @staticmethod
    def _score(contest: Contest, rung: int, records: Mapping[str, RunRecord]) -> None:
        scores: dict[str, dict[int, float]] = {}
        for options in contest.candidates:
            names = {seed: run_name(contest, rung, options, seed) for seed in contest.grid.seeds}
            scores[label(options)] = {
                seed: best_validation(records[name], contest.metric) if name in records else math.nan
                for seed, name in names.items()
            }
        contest.take(rung, scores)

    def _write(self) -> Choices:
        checksum = data_checksum(self.data)
        before = Choices.read(self.out)
        known = before if before is not None and before.data == checksum else Choices(checksum)
        choices = known.merged(self._choice(contest) for contest in self.contests)
        choices.write(self.out)
        return choices

    def _choice(self, contest: Contest) -> Choice:
        options = contest.candidates[0]
        last = next(trial for trial in reversed(contest.trials) if trial["options"] == options)
        return Choice(
            series=contest.series,
            cap=contest.cap,
            options=options,
            metric=contest.metric,
            score=last["score"],
            epochs=last["epochs"],
            recipe=recipe_checksum(self.recipe, contest.series),
            trials=contest.trials,
        )


def best_validation(record: RunRecord, metric: str) -> float:
    """The best validation score of a run; NaN without one."""
    scores = [line[metric] for line in record.curve if math.isfinite(line.get(metric, math.nan))]
    return min(scores, key=describe_metric(metric).loss, default=math.nan)


def _finite(score: float) -> float | None:
    """As JSON has it: a trial that diverged has no score."""
    return score if math.isfinite(score) else None


def label(options: Options) -> str:
    """`lr 0.01, weight decay 0, start dlrm`."""
    words = {"lr": "lr {:g}", "weight_decay": "weight decay {:g}", "start_scale": "start {}"}
    return ", ".join(words[name].format(value) for name, value in options.items()) or "as in the recipe"


def run_name(contest: Contest, rung: int, options: Options, seed: int) -> str:
    """The name of a trial, by what it is."""
    budget = "" if contest.cap is None else f"-cap{contest.cap}"
    values = "".join(f"-{name.replace('_', '')}{value}" for name, value in options.items())
    return f"{file_name(contest.series)}{budget}{values}-epochs{contest.rungs[rung]}-seed{seed}"


def _check_failures(failures: Mapping[str, str], num_runs: int) -> None:
    """Reject trials that failed for another reason than a learning rate too high."""
    real = {name: failure for name, failure in failures.items() if not failure.startswith(DIVERGED)}
    if real:
        reasons = "; ".join(f"{name}: {failure}" for name, failure in real.items())
        raise ValueError(f"{len(real)} of {num_runs} trials failed, see their error.txt: {reasons}")
