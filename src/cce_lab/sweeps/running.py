"""A sweep: all runs of a recipe, side by side, in a folder that can be gone on with.

OUT/recipe.toml       the recipe
OUT/records.jsonl     a record for each finished run
OUT/runs/NAME/        the folder of a run, as of `cce train`
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from cce.checks import check_range
from cce.files import write_atomic
from cce.records import RunRecord, read_records
from cce.run_folder import RECIPE, RECORD, RECORDS, RunFolder
from cce.training import list_checkpoints, make_config, read_toml
from cce.workers import num_cores, open_engine
from cce_lab.sweeps.runs import Task, run_one

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cce.records import RunRecord
    from cce.training import TrainConfig
    from cce_lab.sweeps.runs import Run

    Report = Callable[[RunRecord, str], None]

LOOK_EVERY = 2.0  # seconds
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} epochs [{elapsed}, {remaining} left]"
NO_EPOCH = 0.1  # what a run without training counts for


class Watch:
    """Show the progress of the sweep, gather its records, and report each run that finishes."""

    def __init__(self, sweep: Sweep, *, shown: bool, report: Report | None = None) -> None:
        self.sweep = sweep
        self.report = report
        self._left: set[str] | None = None  # names, when it was last looked at
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)
        total = sum(planned(run) for run in sweep.chosen)
        self._bar = tqdm(total=total, unit="epoch", disable=None if shown else True, bar_format=BAR)

    def __enter__(self) -> Watch:
        self._bar.initial = self._look()  # the rate is that of what is done from now on
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

    def _look(self) -> float:
        left = {run.name for run in self.sweep.left()}
        runs = self.sweep.chosen
        self._bar.n = sum(self._share(run) if run.name in left else planned(run) for run in runs)
        self._bar.set_description_str(f"{len(runs) - len(left)} of {len(runs)} runs")
        self.sweep.gather()
        self._report(left)
        return float(self._bar.n)

    def _report(self, left: set[str]) -> None:
        """Report what has finished since the last look."""
        before, self._left = self._left, left
        finished = [run for run in self.sweep.chosen if before and run.name in before - left]
        total = len(self.sweep.chosen)
        for done, run in enumerate(finished, start=total - len(left) - len(finished) + 1):
            if self.report is not None:
                self.report(self.sweep.folder(run).read_record(), f"{done} of {total}")

    def _share(self, run: Run) -> float:
        """Epochs of an unfinished run so far."""
        lines, _ = self.sweep.folder(run).scan_log()
        num_validations = sum(line["kind"] == "validation" for line in lines)
        return float(min(num_validations / run.config.validations_per_epoch, planned(run)))


def planned(run: Run) -> float:
    """Epochs that a run takes at most."""
    return max(float(run.config.epochs), NO_EPOCH)


CHOSEN = ("refits",)  # by a run that was not told


@dataclass(frozen=True)
class Outcome:
    """What came of a sweep."""

    records: list[RunRecord]
    failures: dict[str, str]  # by the name of the run: what went wrong


class Sweep:
    """The runs of a recipe in the folder `out`. Finished runs are not run again; a killed one is resumed.

    only: series to run, with the runs that these start from; without it, all.
    """

    def __init__(
        self, runs: Sequence[Run], out: Path, *, recipe: str = "", only: Collection[str] | None = None
    ) -> None:
        self.out = out.resolve()  # other processes may work in other folders
        self.runs = [run.placed(self.out / "runs") for run in runs]
        self.sources = {run.source for run in runs if run.source is not None}
        self.chosen = self._choose(only)
        self._lines: dict[Path, str] = {}  # of records that were read
        self.recipe = recipe
        self._check_begun()

    def folder(self, run: Run) -> RunFolder:
        """The folder of a run."""
        return RunFolder(self.out / "runs" / run.name)

    def left(self) -> list[Run]:
        """The chosen runs that are not finished, and finished ones whose checkpoints such a run needs again."""
        left = {run.name: run.source for run in self.chosen if not self._is_finished(run)}
        again = {name for name in left.values() if name is not None and not self._has_checkpoint(name)}
        return [run for run in self.chosen if run.name in left or run.name in again]

    @staticmethod
    def threads(jobs: int, engine: str = "local") -> int:
        """The threads of each run: its share of this machine's cores; one on a cluster, which counts cores itself."""
        check_range("jobs", jobs, 1, 2**16)
        return max(1, num_cores() // jobs) if engine == "local" else 1

    def run(
        self, *, jobs: int = 1, engine: str = "local", progress: bool = False, report: Report | None = None
    ) -> Outcome:
        """Run the unfinished runs, `jobs` at a time, each with its share of the cores. `report` gets each that ends."""
        tasks = [self._task(run, self.threads(jobs, engine)) for run in self.left()]
        workers = open_engine(engine, jobs)
        if self.recipe:
            write_atomic(self.out / RECIPE, self.recipe)
        for task in tasks:
            task.folder.record.unlink(missing_ok=True)  # there only if it is run for its checkpoints
        try:
            with Watch(self, shown=progress, report=report), workers:
                failures = _run_all(tasks, workers)
        except KeyboardInterrupt:
            finished = len(self.chosen) - len(self.left())
            raise KeyboardInterrupt(
                f"{finished} of {len(self.chosen)} runs are finished, the others are saved as far as they are; "
                "resume with the same command"
            ) from None
        return Outcome(read_records(self.out / RECORDS), failures)

    def gather(self) -> None:
        """Write the records of all finished runs in the folder to `records.jsonl`, if there are new ones."""
        paths, target = sorted(self.out.glob(f"runs/*/{RECORD}")), self.out / RECORDS
        if paths == list(self._lines) and target.exists():
            return
        self._lines = {path: self._lines.get(path) or path.read_text(encoding="utf-8") for path in paths}
        text = "".join(self._lines.values())
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            write_atomic(target, text)
        self._drop_checkpoints()

    def _choose(self, only: Collection[str] | None) -> list[Run]:
        known = list(dict.fromkeys(run.series for run in self.runs))
        for name in only or ():
            if name not in known:
                raise ValueError(f"only must name series of the recipe ({', '.join(known)}), got {name!r}.")
        asked = [run for run in self.runs if only is None or run.series in only]
        names = {run.name for run in asked} | {run.source for run in asked}
        return [run for run in self.runs if run.name in names]

    def _task(self, run: Run, threads: int) -> Task:
        config = replace(run.config, threads=run.config.threads or threads)
        return Task(replace(run, config=config), self.folder(run), is_source=run.name in self.sources)

    def _is_finished(self, run: Run) -> bool:
        return self.folder(run).is_finished

    def _has_checkpoint(self, name: str) -> bool:
        return bool(list_checkpoints(RunFolder(self.out / "runs" / name).checkpoints))

    def _check_begun(self) -> None:
        """Reject runs that were begun with other options, or whose records cannot be read."""
        for run in self.runs:
            folder = self.folder(run)
            if folder.is_finished:
                folder.read_record()
            if folder.is_begun:
                begun, wanted = _compared(make_config(read_toml(folder.config))), _compared(run.config)
                left_out = [name for name in CHOSEN if getattr(run.config, name) is None]
                changed = [name for name in wanted if begun[name] != wanted[name] and name not in left_out]
                if changed:
                    raise ValueError(
                        f"out must be a new folder, or one of the same recipe: {run.name} in {self.out} was begun with "
                        f"another {', '.join(changed)}."
                    )

    def _drop_checkpoints(self) -> None:
        """Remove the checkpoints of finished runs, except of those that unfinished runs start from."""
        wanted = {run.source for run in self.runs if not self._is_finished(run)}
        for run in self.runs:
            if run.name not in wanted and self._is_finished(run):
                shutil.rmtree(self.folder(run).checkpoints, ignore_errors=True)


def _run_all(tasks: list[Task], workers: Any) -> dict[str, str]:
    """What went wrong, by the name of the run. What others were busy with is waited for in the end."""
    failures, postponed = {}, []
    for task, ended in zip(tasks, workers.map(run_one, tasks), strict=True):
        if ended.is_postponed:
            postponed.append(replace(task, wait=True))
        elif ended.failure is not None:
            failures[task.run.name] = ended.failure
    return failures | (_run_all(postponed, workers) if postponed else {})


def _compared(config: TrainConfig) -> dict[str, Any]:
    """The options that may not change. A folder may be moved, and cores shared out again."""
    values = asdict(config)
    source = values.pop("start_from")
    return values | {"threads": None, "start_from": source and Path(source).name}
