"""A recipe, its data and a folder of results: what `cce sweep` and `cce tune` do, for Python and for both verbs."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from cce.cli import run_verb
from cce.data import PreparedData
from cce.text import format_bytes
from cce.workers import check_engine, num_cores
from cce_lab.sweeps.recipe import find_recipe, on_base, read_recipe
from cce_lab.sweeps.running import Sweep
from cce_lab.sweeps.runs import list_runs
from cce_lab.sweeps.tuning import Choices, Tuning, data_checksum, tuned_series

if TYPE_CHECKING:
    from cce.records import RunRecord

FOLDER = Path("runs/sweeps")
DATA = Path("runs/data")


@dataclass(frozen=True)
class SweepResult:
    """The runs of a sweep: the folder that they are in, the record of each, and by name why others have none."""

    folder: Path
    records: list[RunRecord]
    failures: dict[str, str]
    num_runs: int

    def rows(self) -> list[dict[str, Any]]:
        """A flat dictionary for each run, as data frames take them."""
        return [record.to_row() for record in self.records]

    def check(self) -> SweepResult:
        """Raise if a run failed."""
        if self.failures:
            reasons = "; ".join(f"{name}: {failure}" for name, failure in self.failures.items())
            raise ValueError(f"{len(self.failures)} of {self.num_runs} runs failed, see their error.txt: {reasons}")
        return self


class Experiment:
    """A recipe, where its data is and where its results go.

    recipe: a TOML file, or a name of `list_recipes`.
    out: the folder of the sweep (default: runs/sweeps/RECIPE).
    like: take data, model, optimizer, epochs and caps from this recipe; what is said of tables stays.
    data: a prepared data set, or its name in runs/data, instead of the recipe's.
    only: series to run.
    seeds: instead of the recipe's.
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
        seeds: Sequence[int] | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        path = find_recipe(recipe)
        found = read_recipe(path)
        if like is not None:
            found = on_base(found, read_recipe(find_recipe(like)))
        if seeds is not None:
            found = replace(found, seeds=tuple(dict.fromkeys(seeds)))
        self.recipe = replace(found, plugins=(*found.plugins, *plugins))
        # as it is kept beside the results: to the byte, below a comment on its base recipe
        self.text = ("" if like is None else f"# cce sweep --like {like}\n") + path.read_bytes().decode("utf-8")
        self.out = FOLDER / found.name if out is None else Path(out)
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
        """Run all runs that are not finished, `jobs` at a time; if the recipe has [tune], with the options it chose."""
        _check(jobs, engine, "sweep", progress=progress)
        data = self.open_data(progress=progress)
        choices = self._read_choices(data)
        if self.recipe.tune is not None:
            if choices is None:
                _note("sweep", "tunes first, as the recipe has [tune]", shown=progress)
                tuning = Tuning(self.recipe, data, self.out, only=self.only)
                choices = tuning.run(jobs=jobs, engine=engine, progress=progress)
            note = f"runs with the options of {self.out}/tuned.json, chosen on validation rows"
            _note("sweep", note, shown=progress)
        sweep = self._sweep(data, choices)
        outcome = sweep.run(jobs=jobs, engine=engine, progress=progress, report=_print_run if progress else None)
        return SweepResult(self.out, outcome.records, outcome.failures, len(sweep.chosen))

    def tune(self, *, jobs: int = 1, engine: str = "local", progress: bool = True) -> Choices:
        """Choose options on validation rows for all series, or those of `only`, and write them to the folder."""
        _check(jobs, engine, "tune", progress=progress)
        tuning = Tuning(self.recipe, self.open_data(progress=progress), self.out, only=self.only)
        return tuning.run(jobs=jobs, engine=engine, progress=progress)

    def planned_sweep(self, *, progress: bool = True) -> Sweep:
        """The sweep, with the options that were chosen if there are such; nothing is run."""
        data = self.open_data(progress=progress)
        choices = self._read_choices(data)
        if self.recipe.tune is not None and choices is None:
            _note("sweep", "without tuning, which comes first: see `cce tune RECIPE --dry-run`", shown=progress)
        return self._sweep(data, choices)

    def planned_tuning(self, *, progress: bool = True) -> Sweep:
        """All trials, where those of later rounds stand for the survivors; nothing is run."""
        return Tuning(self.recipe, self.open_data(progress=progress), self.out, only=self.only).planned()

    def _sweep(self, data: PreparedData, choices: Choices | None) -> Sweep:
        runs = list_runs(self.recipe, data.path, data.schema.vocabulary_sizes, choices=choices)
        return Sweep(runs, self.out, recipe=self.text, only=self.only)

    def _read_choices(self, data: PreparedData) -> Choices | None:
        """The choices in the folder, checked; None if the recipe has no [tune], or if a series was not tuned."""
        found = None if self.recipe.tune is None else Choices.read(self.out)
        if found is None:
            return None
        found.check(self.recipe, data_checksum(data), self.out)
        known = {choice.series for choice in found.choices}
        return found if set(tuned_series(self.recipe, self.only)) <= known else None


def sweep(
    recipe: Path | str,
    *,
    out: Path | str | None = None,
    like: Path | str | None = None,
    data: Path | str | None = None,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    jobs: int = 1,
    engine: str = "local",
    progress: bool = True,
) -> SweepResult:
    """Run all runs of a recipe, as `cce sweep` does; finished ones are not run again. See `Experiment`."""
    experiment = Experiment(recipe, out=out, like=like, data=data, only=only, seeds=seeds)
    return experiment.sweep(jobs=jobs, engine=engine, progress=progress).check()


def tune(
    recipe: Path | str,
    *,
    out: Path | str | None = None,
    like: Path | str | None = None,
    data: Path | str | None = None,
    only: Sequence[str] | None = None,
    jobs: int = 1,
    engine: str = "local",
    progress: bool = True,
) -> Choices:
    """Choose options for each series of a recipe on validation rows, as `cce tune` does. See `Experiment`."""
    experiment = Experiment(recipe, out=out, like=like, data=data, only=only)
    return experiment.tune(jobs=jobs, engine=engine, progress=progress)


def _check(jobs: int, engine: str, verb: str, *, progress: bool) -> None:
    check_engine(engine)
    if engine == "local" and jobs > num_cores():
        _note(verb, f"{jobs} jobs share {num_cores()} cores: they slow each other down", shown=progress)


def _note(verb: str, text: str, *, shown: bool) -> None:
    if shown:
        tqdm.write(f"cce {verb}: {text}", file=sys.stderr)


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
