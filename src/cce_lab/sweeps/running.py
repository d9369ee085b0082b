"""A sweep: all runs of a recipe, side by side, in a folder that can be resumed; for Python and for `cce sweep`.

OUT/recipe.toml       the recipe
OUT/records.jsonl     a record for each finished run
OUT/runs/NAME/        the folder of a run, as of `cce train`
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from cce.checks import check_range
from cce.cli import run_verb
from cce.data import PreparedData
from cce.files import write_atomic
from cce.records import RunRecord, read_records
from cce.run_folder import RECIPE, RECORD, RECORDS, TRIALS, RunFolder
from cce.text import format_bytes
from cce.training import TrainConfig, list_checkpoints, make_config, read_toml
from cce.workers import check_engine, num_cores, open_engine
from cce_lab.sweeps.recipe import find_recipe, on_base, read_recipe
from cce_lab.sweeps.runs import Choices, Run, Task, Trial, choose, list_runs, list_trials, run_one

FOLDER = Path("runs/sweeps")
DATA = Path("runs/data")
Report: TypeAlias = Callable[[RunRecord, str], None]


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


class Sweep:
    """The runs of a recipe in the folder `out`. Finished runs are not run again; a killed one is resumed.

    only: series to run, with the runs that these start from; without it, all.
    """

    def __init__(
        self, runs: Sequence[Run], out: Path, *, recipe: str = "", only: Collection[str] | None = None
    ) -> None:
        self.out = out.resolve()  # other processes may work in other folders
        self.runs = [run.placed(self.out / "runs") for run in runs]
        self.recipe = recipe
        asked = [run for run in self.runs if only is None or run.series in only]
        names = {run.name for run in asked} | {run.source for run in asked}
        self.chosen = [run for run in self.runs if run.name in names]
        self._check_begun()

    def folder(self, name: str) -> RunFolder:
        return RunFolder(self.out / "runs" / name)

    def left(self) -> list[Run]:
        """The chosen runs that are not finished, and finished ones whose checkpoints such a run needs again."""
        left = {run.name: run.source for run in self.chosen if not self.folder(run.name).is_finished}
        sources = {name for name in left.values() if name is not None}
        again = {name for name in sources if not list_checkpoints(self.folder(name).checkpoints)}
        return [run for run in self.chosen if run.name in left or run.name in again]

    def run(
        self, *, jobs: int = 1, engine: str = "local", progress: bool = False, report: Report | None = None
    ) -> SweepResult:
        """Run the unfinished runs, `jobs` at a time, each with its share of the cores. `report` gets each that ends."""
        check_range("jobs", jobs, 1, 2**16)
        # a cluster counts cores itself
        threads = max(1, num_cores() // jobs) if engine == "local" else 1
        sources, left, tasks = {run.source for run in self.runs}, self.left(), []
        for run in left:
            config = replace(run.config, threads=run.config.threads or threads)
            placed = replace(run, config=config)
            tasks.append(Task(placed, self.folder(run.name), is_source=run.name in sources))
        workers = open_engine(engine, jobs)
        if self.recipe:
            write_atomic(self.out / RECIPE, self.recipe)
        for task in tasks:
            task.folder.record.unlink(missing_ok=True)  # there only if it is run for its checkpoints
        total = len(self.chosen)
        self.gather()
        try:
            bar = tqdm(total=total, initial=total - len(left), unit="run", disable=None if progress else True)
            with bar, workers:
                failures = self._run_all(tasks, workers, bar, report)
        except KeyboardInterrupt:
            self.gather()
            raise KeyboardInterrupt(
                f"{total - len(self.left())} of {total} runs are finished, the others are saved as far as they are; "
                "resume with the same command"
            ) from None
        self.gather()
        return SweepResult(self.out, read_records(self.out / RECORDS), failures, total)

    def _run_all(self, tasks: list[Task], workers: Any, bar: Any, report: Report | None) -> dict[str, str]:
        """What went wrong, by the name of the run. Runs that others start from come first."""
        failures, total = {}, len(self.chosen)
        done = total - len(tasks)
        while tasks:
            names = {task.run.name for task in tasks}
            ready = [task for task in tasks if task.run.source not in names]
            tasks = [task for task in tasks if task.run.source in names]
            for task, ended in zip(ready, workers.map(run_one, ready), strict=True):
                done += 1
                bar.update()
                self.gather()
                if ended is not None:
                    failures[task.run.name] = ended
                elif report is not None:
                    report(task.folder.read_record(), f"{done} of {total}")
        return failures

    def gather(self) -> None:
        """Write the records of all finished runs in the folder to `records.jsonl`, and drop checkpoints of no use."""
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(self.out.glob(f"runs/*/{RECORD}")))
        target = self.out / RECORDS
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            write_atomic(target, text)
        finished = {run.name for run in self.runs if self.folder(run.name).is_finished}
        wanted = {run.source for run in self.runs if run.name not in finished}
        for name in finished - wanted:
            shutil.rmtree(self.folder(name).checkpoints, ignore_errors=True)

    def _check_begun(self) -> None:
        """Reject runs that were begun with other options, or whose records cannot be read."""
        for run in self.runs:
            folder = self.folder(run.name)
            if folder.is_finished:
                folder.read_record()
            if folder.is_begun:
                begun, wanted = _compared(make_config(read_toml(folder.config))), _compared(run.config)
                changed = [name for name in wanted if begun[name] != wanted[name]]
                if changed:
                    raise ValueError(
                        f"out must be a new folder, or one of the same recipe: {run.name} in {self.out} was begun with "
                        f"another {', '.join(changed)}."
                    )


def _compared(config: TrainConfig) -> dict[str, Any]:
    """The options that may not change. A folder may be moved, and cores shared out again."""
    values = asdict(config)
    source = values.pop("start_from")
    return values | {"threads": None, "start_from": source and Path(source).name}


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
            found = on_base(found, read_recipe(like))
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
    recipe: Path | str, *, jobs: int = 1, engine: str = "local", progress: bool = True, **where: Any
) -> SweepResult:
    """Run all runs of a recipe, as `cce sweep` does; finished ones are not run again. where: as for `Experiment`."""
    return Experiment(recipe, **where).sweep(jobs=jobs, engine=engine, progress=progress).check()


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
    for folder in ("", os.environ.get("CCE_DATA", "")):
        if (path := Path(folder) / name).exists():
            return path
    raise FileNotFoundError(f"raw data {name!r} must be there or in the folder CCE_DATA, got neither.")
