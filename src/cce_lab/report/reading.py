"""What `cce report` is pointed at → records of finished runs, logs of unfinished ones, and what a recipe expects.

A folder is walked for `records.jsonl` (of a sweep), `record.jsonl` (of a run), `metrics.jsonl` beside `config.toml` (of
a run that is not finished) and `recipe.toml`. A run that is found twice is taken once.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.budget import FULL_SIZED
from cce.files import read_text
from cce.records import RunRecord
from cce.run_folder import CONFIG, LOG, RECIPE, RECORD, RECORDS, TRIALS, RunFolder
from cce_lab.report.groups import SOURCE_EPOCHS, SOURCE_TRAINING, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cce_lab.report.groups import Key

SILENT = 900.0  # seconds without a line after which a run is taken to be stopped
SKIPPED = ("checkpoints", "tensorboard", "report", TRIALS)  # folders that hold no runs, or none to compare


@dataclass(frozen=True)
class LiveRun:
    """A run without a record: it is running, or was stopped."""

    name: str
    config: dict[str, Any]
    lines: list[dict[str, Any]]  # of its log
    idle: float  # seconds since the log was last written
    series: str = ""
    failure: str = ""  # the last line of what went wrong, if something did

    @property
    def is_running(self) -> bool:
        """Whether it seems to be under way: it did not fail, and its log is not old."""
        return not self.failure and self.idle < SILENT

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind: train, validation, cluster, test."""
        return [line for line in self.lines if line.get("kind") == kind]

    @property
    def step(self) -> int:
        """The last step in its log."""
        return max((int(line.get("step", 0)) for line in self.lines), default=0)


@dataclass
class Collected:
    """Everything that was found."""

    records: list[RunRecord] = field(default_factory=list)
    live: list[LiveRun] = field(default_factory=list)
    recipes: dict[str, str] = field(default_factory=dict)  # path → text
    expected: dict[Key, dict[str, Any]] = field(default_factory=dict)  # what the recipe of a group expects
    notes: list[str] = field(default_factory=list)
    recorded: set[Path] = field(default_factory=set)  # folders of runs that a sweep has records of
    num_planned: int = 0  # runs that recipes ask for: an upper bound, as equal tables are trained once

    @property
    def num_running(self) -> int:
        """Runs that seem to be under way."""
        return sum(run.is_running for run in self.live)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more can come."""
        num_failed = sum(bool(run.failure) for run in self.live)
        return num_failed == len(self.live) and len(self.records) + num_failed >= self.num_planned

    @property
    def num_runs(self) -> int:
        """Finished and unfinished ones."""
        return len(self.records) + len(self.live)


def collect(paths: Sequence[Path], *, may_be_empty: bool = False) -> Collected:
    """Read everything at `paths`; reject a missing path, and paths without a single run."""
    found = Collected()
    records: dict[tuple[Any, ...], RunRecord] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there: give files of records, or folders of runs.")
        for file in _files(path):
            _take(file, found, records)
    found.records = list(records.values())
    found.num_planned = sum(num_planned(read_plan(text)) for text in found.recipes.values())
    if not found.num_runs and not may_be_empty:
        raise ValueError(f"there are no runs in {', '.join(map(str, paths))}.")
    return found


def _take(file: Path, found: Collected, records: dict[tuple[Any, ...], RunRecord]) -> None:
    if file.name == "recipe.toml":
        found.recipes[str(file)] = read_text(file)
    elif file.name == LOG:
        if file.parent not in found.recorded and (run := read_live(file.parent, found.notes)) is not None:
            found.live.append(replace(run, series=series_by_name(run.name, _plan_of(file, found))))
    else:
        plan = _plan_of(file, found)
        expected = plan.get("expected", {})
        for record in _with_sources(read_lines(file, found.notes), plan):
            found.recorded.add(file.parent / "runs" / record.name)
            key = (record.method, record.seed, record.num_params, record.nbytes, record.seconds, str(record.scores))
            if key not in records or (record.series and not records[key].series):
                records[key] = _named(record, file, plan)
            if isinstance(expected, dict) and expected:
                found.expected[key_of(record.config)] = expected


def _with_sources(records: list[RunRecord], plan: dict[str, Any]) -> list[RunRecord]:
    """A run that starts from another one of the same file takes over its epochs and its bytes in training.

    So the two can be compared: product quantisation of a trained table needs as much memory as that table did. Series
    of a recipe whose epochs are their own are compared with the others too, under the recipe's epochs.
    """
    train = plan.get("train")
    common = {SOURCE_EPOCHS: train["epochs"]} if isinstance(train, dict) and train.get("epochs") else {}
    known = {
        record.name: {SOURCE_EPOCHS: record.config.get("epochs"), SOURCE_TRAINING: record.training_nbytes}
        for record in records
    }
    return [
        replace(record, config=record.config | known.get(Path(str(record.config.get("start_from"))).name, {}) | common)
        for record in records
    ]


def _named(record: RunRecord, file: Path, plan: dict[str, Any]) -> RunRecord:
    """A run's own record has neither name nor series: they come from its folder and the recipe."""
    if record.name or file.name != RECORD:
        return record
    name = file.parent.name
    return replace(record, name=name, series=record.series or series_by_name(name, plan))


def _plan_of(file: Path, found: Collected) -> dict[str, Any]:
    """The recipe in the nearest folder above a file; empty without one."""
    paths = (str(parent / "recipe.toml") for parent in file.parents)
    recipe = next((path for path in paths if path in found.recipes), None)
    if recipe is None:
        return {}
    plan = read_plan(found.recipes[recipe])
    if not plan and (note := f"{recipe} cannot be read as TOML.") not in found.notes:
        found.notes.append(note)
    return plan


def _files(path: Path) -> Iterator[Path]:
    """The files worth reading, in a fixed order; a run's log only where it has no record."""
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        parent, there = Path(folder), set(names)
        yield from (parent / name for name in (RECIPE, RECORDS, RECORD) if name in there)
        if {LOG, CONFIG} <= there and RECORD not in there:
            yield parent / LOG


def read_lines(path: Path, notes: list[str]) -> list[RunRecord]:
    """The records of a file. A malformed line is rejected by its number; the last line may be cut short."""
    text = read_text(path)
    records = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append(RunRecord.from_json(line))
        except (ValueError, TypeError) as error:
            if number > text.count("\n"):
                notes.append(f"{path}:{number} was cut short, and is left out.")
                continue
            raise ValueError(f"{path}:{number} is not a record of a run: {error}") from error
    return records


def read_live(folder: Path, notes: list[str]) -> LiveRun | None:
    """The run in a folder, by its log; None while its configuration cannot be read. Damaged lines are noted."""
    try:
        run = RunFolder(folder)
        config = tomllib.loads(run.config.read_text(encoding="utf-8"))
        (lines, damage), idle = run.scan_log(), time.time() - run.log.stat().st_mtime
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None  # it has just begun, or has just been taken away
    failure = run.error.read_text(encoding="utf-8").strip().splitlines()[-1:] if run.error.exists() else []
    notes += damage
    return LiveRun(folder.name, config, lines, max(idle, 0.0), failure="".join(failure))


def read_plan(text: str) -> dict[str, Any]:
    """The recipe; empty if it is not TOML. `cce sweep` checks it, a report only reads along."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def num_planned(plan: dict[str, Any]) -> int:
    """Runs that a recipe asks for at most: of budgets that give the same tables, one is run."""
    sweep, own = _table(plan, "sweep"), _table(plan, "series")
    seeds, caps = len(sweep.get("seeds", (0,))), len(sweep.get("caps", ()))
    series = {name: {"method": name} for name in sweep.get("methods", ())} | own
    runs = (1 if each.get("method") in FULL_SIZED else len(each.get("caps", range(caps))) for each in series.values())
    return seeds * sum(runs)


def series_by_name(run: str, plan: dict[str, Any]) -> str:
    """The series of a run by its name, `SERIES-cap8000-seed0`; empty if the recipe has none that fits."""
    names = [*_table(plan, "sweep").get("methods", ()), *_table(plan, "series")]
    fitting = [name for name in names if run.startswith(f"{_slug(name)}-")]
    return max(fitting, key=len, default="")


def _slug(series: str) -> str:
    """The name of a series as sweeps write it in the folders of its runs."""
    return re.sub(r"[^a-z0-9.]+", "-", series.lower()).strip("-")


def _table(plan: dict[str, Any], name: str) -> dict[str, Any]:
    found = plan.get(name, {})
    return found if isinstance(found, dict) else {}
