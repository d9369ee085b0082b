"""A sweep: all runs of a recipe, side by side, in a folder that can be gone on with.

OUT/recipe.toml       the recipe
OUT/records.jsonl     a record for each finished run
OUT/runs/NAME/        the folder of a run, as of `cce train`
"""

from __future__ import annotations

import os
import shutil
import threading
import traceback
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from tqdm import tqdm

from cce.data.engine import open_engine
from cce.records import RunRecord, read_records, write_records, write_whole
from cce.training.config import make_config, read_toml
from cce.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cce.experiments.runs import Run

LOOK_EVERY = 2.0  # seconds between two looks at how far the runs are


@dataclass(frozen=True)
class Outcome:
    """What came of a sweep."""

    records: list[RunRecord]
    failures: dict[str, str]  # by the name of the run: what went wrong


class Sweep:
    """The runs of a recipe in the folder `out`. Finished ones are not run again; one that was killed goes on."""

    def __init__(self, runs: Sequence[Run], out: Path, *, recipe: str = "") -> None:
        self.out = out
        self.runs = [run.placed(out / "runs") for run in runs]
        self._check_begun()
        if recipe:
            write_whole(out / "recipe.toml", recipe)

    def left(self) -> list[Run]:
        """The runs that are not finished."""
        return [run for run in self.runs if not self._record_path(run).exists()]

    def run(self, *, jobs: int = 1, engine: str = "local", progress: bool = False) -> Outcome:
        """Run what is left, `jobs` at a time, each with its share of the cores."""
        threads = max(1, len(os.sched_getaffinity(0)) // jobs) if engine == "local" else 1
        failures: dict[str, str] = {}
        with open_engine(engine, jobs) as workers, _Watch(self, shown=progress):
            for wave in self._waves():
                tasks = [_Task(self._with_threads(run, threads), self.out / "runs" / run.name) for run in wave]
                for run, failure in zip(wave, workers.map(run_one, tasks), strict=True):
                    if failure is not None:
                        failures[run.name] = failure
        self._drop_checkpoints()
        return Outcome(self.collect(), failures)

    def collect(self) -> list[RunRecord]:
        """The records of all finished runs in the folder, written to `records.jsonl` as well."""
        paths = sorted((self.out / "runs").glob("*/record.jsonl"))
        found = [record for path in paths for record in read_records(path)]
        write_records(found, self.out / "records.jsonl")
        return found

    def _waves(self) -> list[list[Run]]:
        """First the runs that stand alone, then those that start from them."""
        left = self.left()
        return [[run for run in left if run.source is None], [run for run in left if run.source is not None]]

    def _record_path(self, run: Run) -> Path:
        return self.out / "runs" / run.name / "record.jsonl"

    def _check_begun(self) -> None:
        """Refuse to go on with runs that were begun with other options."""
        for run in self.runs:
            path = self.out / "runs" / run.name / "config.toml"
            if path.exists():
                begun, wanted = asdict(make_config(read_toml(path))), asdict(run.config)
                changed = [name for name in wanted if begun[name] != wanted[name] and name != "threads"]
                if changed:
                    raise ValueError(
                        f"out must be a new folder, or one of the same recipe: {run.name} in {self.out} was begun with "
                        f"another {', '.join(changed)}."
                    )

    @staticmethod
    def _with_threads(run: Run, threads: int) -> Run:
        return replace(run, config=replace(run.config, threads=run.config.threads or threads))

    def _drop_checkpoints(self) -> None:
        """Of finished runs nothing is resumed; those that others start from are kept until they have."""
        wanted = {run.source for run in self.left()}
        for run in self.runs:
            if self._record_path(run).exists() and run.name not in wanted:
                shutil.rmtree(self.out / "runs" / run.name / "checkpoints", ignore_errors=True)


@dataclass(frozen=True)
class _Task:
    run: Run
    folder: Path


def run_one(task: _Task) -> str | None:
    """Train one run to its end, or go on with it; gives what went wrong, if something did."""
    from cce.training.trainer import Trainer

    config, folder = task.run.config, task.folder
    try:
        begun = (folder / "config.toml").exists()
        trainer = Trainer.resume(folder, threads=config.threads) if begun else Trainer(config, folder)
        record = replace(trainer.run(), name=task.run.name, series=task.run.series)
    except Exception as error:  # noqa: BLE001 - the other runs go on
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "error.txt", traceback.format_exc())
        return f"{type(error).__name__}: {error}"
    write_records([record], folder / "record.jsonl")
    (folder / "error.txt").unlink(missing_ok=True)
    return None


class _Watch:
    """Looks at the folders of the runs now and then: shows how far the sweep is, and keeps `records.jsonl` new."""

    def __init__(self, sweep: Sweep, *, shown: bool) -> None:
        self.sweep = sweep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)
        total = sum(_planned(run) for run in sweep.runs)
        self._bar = tqdm(total=total, unit="epoch", disable=None if shown else True, bar_format=BAR)

    def __enter__(self) -> _Watch:
        self._look(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        self._bar.close()

    def _look_again(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self._look()

    def _look(self, *, first: bool = False) -> None:
        left = {run.name for run in self.sweep.left()}
        done = sum(_planned(run) if run.name not in left else self._share(run) for run in self.sweep.runs)
        if first:
            self._bar.initial = done
        self._bar.n = done
        self._bar.set_description_str(f"{len(self.sweep.runs) - len(left)} of {len(self.sweep.runs)} runs")
        self.sweep.collect()

    def _share(self, run: Run) -> float:
        """Epochs of an unfinished run so far."""
        validations = [
            line
            for line in read_metrics(self.sweep.out / "runs" / run.name / "metrics.jsonl")
            if line["kind"] == "validation"
        ]
        return min(len(validations) / run.config.validations_per_epoch, _planned(run))


BAR = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} epochs [{elapsed}, {remaining} left]"


def _planned(run: Run) -> float:
    return float(max(run.config.epochs, 0.1))
