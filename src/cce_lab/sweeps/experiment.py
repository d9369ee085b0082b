"""A recipe, its data and a folder of results: what `cce sweep` does, for Python and for the verb."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from cce.cli import run_verb
from cce.data import PreparedData
from cce.records import read_records
from cce.run_folder import RECORDS, TRIALS
from cce.text import format_bytes
from cce.workers import check_engine, num_cores
from cce_lab.sweeps.recipe import find_recipe, on_base, read_recipe
from cce_lab.sweeps.running import Sweep, SweepResult
from cce_lab.sweeps.runs import Choices, list_runs
from cce_lab.sweeps.tuning import Trial, choose, list_trials

if TYPE_CHECKING:
    from cce.records import RunRecord

FOLDER = Path("runs/sweeps")
DATA = Path("runs/data")


class Experiment:
    """A recipe, where its data is and where its results go.

    recipe: a TOML file, or a name of `list_recipes`.
    out: the folder of the sweep (default: runs/sweeps/RECIPE).
    like: take data, model, optimizer, epochs and caps from this recipe; what is said of tables stays.
    data: a prepared data set, or its name in runs/data, instead of the recipe's.
    only: series to run.
    plugins: what `load_plugins` returned, for the processes of the sweep.
    """

    def __init__(
        self,
        recipe: Path | str,
        *,
        out: Path | str | None = None,
        like: Path | str | None = None,
        data: Path | str | None = None,
        only: Sequence[str] | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        path = find_recipe(recipe)
        found = read_recipe(path)
        if like is not None:
            found = on_base(found, read_recipe(find_recipe(like)))
        self.recipe = replace(found, plugins=(*found.plugins, *plugins))
        # as it is kept beside the results: to the byte, below a comment on its base recipe
        self.text = ("" if like is None else f"# cce sweep --like {like}\n") + path.read_bytes().decode("utf-8")
        self.out = FOLDER / found.name if out is None else Path(out)
        known = list(found.all_series())
        for name in only or ():
            if name not in known:
                raise ValueError(f"only must name series of the recipe ({', '.join(known)}), got {name!r}.")
        self.only, self._is_prepared = only, data is not None
        self.data = DATA / found.data["name"] if data is None else Path(data)
        if data is not None and not self.data.exists() and (DATA / data).exists():
            self.data = DATA / data

    def open_data(self, *, progress: bool = True) -> PreparedData:
        """The data set, which is prepared first if it is the recipe's and not there."""
        if not self._is_prepared and not self.data.exists():
            if "prepare" not in self.recipe.data:
                raise ValueError("recipe must say how its data is prepared, or --data must name a data set.")
            kind, *argv = shlex.split(self.recipe.data["prepare"])
            raw = [] if kind == "synthetic" else [str(_find_raw(argv.pop(0)))]
            with nullcontext() if progress else redirect_stdout(io.StringIO()):
                run_verb(["prepare", kind, *raw, str(self.data), *argv, *([] if progress else ["--json"])])
        return PreparedData.open(self.data.resolve())

    def sweep(self, *, jobs: int = 1, engine: str = "local", progress: bool = True) -> SweepResult:
        """Run all runs that are not finished, `jobs` at a time. With [tune], trials first: see `tuning.py`."""
        check_engine(engine)
        if engine == "local" and jobs > num_cores():
            _note(f"{jobs} jobs share {num_cores()} cores: they slow each other down", shown=progress)
        data, choices = self.open_data(progress=progress), None
        if trials := list_trials(self.recipe, data, self.only):
            _note("[tune]: trials first, chosen on validation rows", shown=progress)
            found = self._trial_sweep(trials).run(jobs=jobs, engine=engine, progress=progress)
            choices = choose(trials, found.records, found.failures)
            for (series, cap), options in choices.items():
                _note(f"{series}{'' if cap is None else f', cap {cap:,}'}: {options}", shown=progress)
        report = _print_run if progress else None
        return self._sweep(data, choices).run(jobs=jobs, engine=engine, progress=progress, report=report)

    def planned(self, *, progress: bool = True) -> list[Sweep]:
        """The trials of [tune], if it has it, and the sweep; nothing is run."""
        data, choices = self.open_data(progress=progress), None
        trials = list_trials(self.recipe, data, self.only)
        tuning = [self._trial_sweep(trials)] if trials else []
        if tuning and not tuning[0].left():
            choices = choose(trials, read_records(tuning[0].out / RECORDS), {})
        return [*tuning, self._sweep(data, choices)]

    def _trial_sweep(self, trials: list[Trial]) -> Sweep:
        return Sweep([trial.run for trial in trials], self.out / TRIALS)

    def _sweep(self, data: PreparedData, choices: Choices | None) -> Sweep:
        runs = list_runs(self.recipe, data.path, data.schema.vocabulary_sizes, choices=choices)
        return Sweep(runs, self.out, recipe=self.text, only=self.only)


def sweep(
    recipe: Path | str,
    *,
    out: Path | str | None = None,
    like: Path | str | None = None,
    data: Path | str | None = None,
    only: Sequence[str] | None = None,
    jobs: int = 1,
    engine: str = "local",
    progress: bool = True,
) -> SweepResult:
    """Run all runs of a recipe, as `cce sweep` does; finished ones are not run again. See `Experiment`."""
    experiment = Experiment(recipe, out=out, like=like, data=data, only=only)
    return experiment.sweep(jobs=jobs, engine=engine, progress=progress).check()


def _note(text: str, *, shown: bool) -> None:
    if shown:
        tqdm.write(f"cce sweep: {text}", file=sys.stderr)


def _print_run(record: RunRecord, count: str) -> None:
    """A line for a finished run, above the progress bar where there is one, and at once where output is piped."""
    scores = ", ".join(f"{name} {score:.4f}" for name, score in record.scores.items())
    words = f"{record.num_params:,} params, {format_bytes(record.nbytes)}, {record.seconds:,.0f} s"
    tqdm.write(f"{count}: {record.name}: {scores}; {words}", file=sys.stdout)
    sys.stdout.flush()


def _find_raw(name: str) -> Path:
    """A raw file, at its path or in the folder CCE_DATA."""
    candidates = [Path(name), *(Path(os.environ[key]) / name for key in ("CCE_DATA",) if key in os.environ)]
    for path in candidates:
        if path.exists():
            return path
    raise FileNotFoundError(f"raw data {name!r} must be there or in the folder CCE_DATA, got neither.")
