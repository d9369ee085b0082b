"""What `cce report` is pointed at → records of runs, and what a recipe expects.

A folder is walked for `records.jsonl` (of a sweep), `record.jsonl` (of a run) and `recipe.toml`. A run that is found
twice is taken once; runs that are not finished are counted.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cce.files import read_text
from cce.records import RunRecord, read_records
from cce.run_folder import CONFIG, RECIPE, RECORD, RECORDS, TRIALS
from cce_lab.report.groups import Key, key_of, with_sources

SKIPPED = ("checkpoints", "tensorboard", "report", TRIALS)  # folders that hold no runs, or none to compare


@dataclass
class Collected:
    """Everything that was found."""

    records: list[RunRecord] = field(default_factory=list)
    recipes: dict[str, str] = field(default_factory=dict)  # path → text
    expected: dict[Key, dict[str, Any]] = field(default_factory=dict)  # what the recipe of a group expects
    notes: list[str] = field(default_factory=list)


def collect(paths: Sequence[Path]) -> Collected:
    """Read everything at `paths`; reject a missing path, and paths without a finished run."""
    found = Collected()
    records: dict[tuple[Any, ...], RunRecord] = {}
    recorded: set[Path] = set()  # folders of runs that have a record
    begun: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there: give files of records, or folders of runs.")
        for file in _files(path):
            if file.name == RECIPE:
                found.recipes[str(file)] = read_text(file)
            elif file.name == CONFIG:
                begun.add(file.parent)
            else:
                for record in _read(file, found):
                    recorded |= {file.parent, file.parent / "runs" / record.name}
                    same = (record.method, record.seed, record.num_params, record.nbytes, record.seconds)
                    key = (*same, str(record.scores))
                    if key not in records or (record.series and not records[key].series):
                        records[key] = record
    found.records = list(records.values())
    unfinished = len(begun - recorded)
    left_out = f"{unfinished} run{'' if unfinished == 1 else 's'} not finished" if unfinished else ""
    if not found.records:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, paths))}{left_out and f'; {left_out}'}.")
    if left_out:
        found.notes.append(f"{left_out}, and left out.")
    return found


def _files(path: Path) -> Iterator[Path]:
    """The files worth reading, in a fixed order."""
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        yield from (Path(folder) / name for name in (RECIPE, RECORDS, RECORD, CONFIG) if name in names)


def _read(file: Path, found: Collected) -> list[RunRecord]:
    """The records of a file, with names; what its recipe expects is added to `found`."""
    plan = _plan_of(file, found)
    train = plan.get("train")
    records = with_sources(read_records(file), train.get("epochs") if isinstance(train, dict) else None)
    if file.name == RECORD:
        records = [record if record.name else replace(record, name=file.parent.name) for record in records]
    if isinstance(expected := plan.get("expected"), dict):
        found.expected |= {key_of(record.config): expected for record in records}
    return records


def _plan_of(file: Path, found: Collected) -> dict[str, Any]:
    """The recipe in the nearest folder above a file; empty without one that is TOML."""
    paths = (str(parent / RECIPE) for parent in file.parents)
    recipe = next((path for path in paths if path in found.recipes), None)
    if recipe is None:
        return {}
    try:
        return tomllib.loads(found.recipes[recipe])
    except tomllib.TOMLDecodeError:
        if (note := f"{recipe} cannot be read as TOML.") not in found.notes:
            found.notes.append(note)
        return {}
