"""A sweep: all runs of a recipe, side by side, in a folder that can be resumed.

OUT/recipe.toml       the recipe
OUT/records.jsonl     a record for each finished run
OUT/runs/NAME/        the folder of a run, as of `cce train`
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from cce.checks import check_range
from cce.files import write_atomic
from cce.records import read_records
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
        """The folder of a run."""
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
