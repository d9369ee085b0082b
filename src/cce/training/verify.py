"""Is the folder of a run as it was written? Every file is read, and no code of a model is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.data import Verification
from cce.models import MODELS
from cce.run_folder import CONFIG, RunFolder
from cce.training.checkpoint import Checkpoint, checkpoint_path, list_checkpoints, read_checkpoint
from cce.training.divergence import non_finite_parameter
from cce.training.loading import load_model, read_run_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BAD_FILE = (OSError, TypeError, ValueError)


def verify_run(folder: Path) -> Verification:
    """Read all of a run. A run that is not finished, or whose checkpoints were removed as it is, has no problem."""
    run = RunFolder(folder)
    if not run.is_begun:
        raise FileNotFoundError(f"{folder} must be the folder of a run, got no {CONFIG} there.")
    problems = [*_config_problems(run), *_record_problems(run)]
    lines, damage = run.scan_log()
    whole = []
    for path in list_checkpoints(run.checkpoints):
        try:
            whole.append(read_checkpoint(path))
        except BAD_FILE as error:
            damage.append(str(error))
    damage += [problem for checkpoint in whole for problem in _checkpoint_problems(checkpoint)]
    damage += _best_problems(run, whole)
    checked = {"checkpoints": len(whole), "lines of the log": len(lines)}
    return Verification("run", str(folder), checked, problems + damage)


def _config_problems(folder: RunFolder) -> Iterator[str]:
    try:
        read_run_options(folder, {}, trust_model=True)
    except BAD_FILE as error:
        yield str(error)


def _record_problems(folder: RunFolder) -> Iterator[str]:
    """A run that is not finished has no record, which is no problem."""
    try:
        if folder.is_finished:
            folder.read_record()
    except BAD_FILE as error:
        yield str(error)


def _checkpoint_problems(checkpoint: Checkpoint) -> Iterator[str]:
    """The content of a checkpoint whose checksums are right. A model from a user's file is not built."""
    named = checkpoint_path(checkpoint.path.parent, checkpoint.step).name
    if checkpoint.path.name != named:
        yield f"{checkpoint.path} must be named after its step, {named}."
    try:
        checkpoint.get("curve", list)
        if checkpoint.get("config", dict).get("model", "dlrm") in MODELS:
            _, model = load_model(checkpoint)
            name = non_finite_parameter(model)
            if name is not None:
                yield f"{checkpoint.path}: {name} must be finite, got NaN or infinity."
    except BAD_FILE as error:
        yield str(error)


def _best_problems(folder: RunFolder, whole: list[Checkpoint]) -> Iterator[str]:
    """A run ends with its best checkpoint, so it must be there."""
    try:
        best = whole[-1].best_step if whole else -1
        if best >= 0 and best not in [checkpoint.step for checkpoint in whole]:
            path = checkpoint_path(folder.checkpoints, best)
            yield f"{path}, the best checkpoint, must be whole: the next best would replace it."
    except BAD_FILE as error:
        yield str(error)
