"""One run of a sweep: begun, gone on with, or found to be done already."""

from __future__ import annotations

import shutil
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cce.files import FolderInUseError, write_atomic
from cce.plugins import load_plugins
from cce.run_folder import RunFolder

if TYPE_CHECKING:
    from cce.training import TrainConfig, Trainer
    from cce_lab.sweeps.runs import Run


@dataclass(frozen=True)
class Task:
    """A run, its folder, and what is to be done about others."""

    run: Run
    folder: RunFolder
    is_source: bool = False  # others start from it: its checkpoints stay
    wait: bool = False  # for a process that trains it, rather than leave it for later


@dataclass(frozen=True)
class Ended:
    """The outcome of a run. With neither field set, the run is finished."""

    is_postponed: bool = False  # another process trains it, or the run that it starts from
    failure: str | None = None


def run_one(task: Task) -> Ended:
    """Train one run to its end, or resume it. Other processes may be asked to do the same run."""
    load_plugins(task.run.config.plugins)  # this may be a process of its own
    try:
        with task.folder.lock(wait=task.wait):
            return _run_alone(task)
    except FolderInUseError:
        return Ended(is_postponed=True)


def _run_alone(task: Task) -> Ended:
    if task.folder.is_finished:
        return Ended()
    if task.run.source is not None and not _has_source(task):
        failure = f"{task.run.source}, which it starts from, is not finished."
        return Ended(failure=failure) if task.wait else Ended(is_postponed=True)
    return _train(task)


def _has_source(task: Task) -> bool:
    assert task.run.source is not None
    source = RunFolder(task.folder.path.with_name(task.run.source))
    with source.lock(wait=task.wait):
        return source.is_finished


def _train(task: Task) -> Ended:
    try:
        trainer = _trainer(task.run.config, task.folder)
        trainer.run(name=task.run.name, series=task.run.series)
    except Exception as error:  # noqa: BLE001 - the other runs continue
        write_atomic(task.folder.error, traceback.format_exc())
        return Ended(failure=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    task.folder.error.unlink(missing_ok=True)
    if not task.is_source:
        shutil.rmtree(task.folder.checkpoints, ignore_errors=True)  # nothing is left to resume
    if trainer.stop_request.is_set:
        raise KeyboardInterrupt  # it came when the run was done: no other is to begin
    return Ended()


def _trainer(config: TrainConfig, folder: RunFolder) -> Trainer:
    from cce.training import Trainer

    if not folder.is_begun:
        return Trainer(config, folder.path, lock=False)
    moved: dict[str, Any] = {"model": config.model, "plugins": config.plugins}
    if config.start_from is not None:
        moved["start_from"] = config.start_from
    return Trainer.resume(folder.path, lock=False, threads=config.threads, **moved)
