"""Runs saved and restored: a checkpoint holds the session, every phase, and the options."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.data import MANIFEST, PreparedData
from cce.distributed import Ranks, broadcast
from cce.models import find_model
from cce.run_folder import CONFIG, RunFolder
from cce.training.checkpoint import (
    Checkpoint,
    checkpoint_path,
    explained_misfits,
    list_checkpoints,
    prune_checkpoints,
    read_checkpoint,
    read_latest,
    remove_after,
    write_checkpoint,
)
from cce.training.config import MAY_BE_CHOSEN_AGAIN, MAY_CHANGE, MAY_MOVE, TrainConfig
from cce.training.options import make_config

if TYPE_CHECKING:
    from cce.training.resolving import ResolvedConfig
    from cce.training.trainer import Trainer

KEPT = 2  # checkpoints, besides the best, those of int8 rows and the one that refits begin with


def save_run(trainer: Trainer) -> None:
    """Write a checkpoint, and remove those that are no longer needed."""
    session = trainer.session
    if not session.ranks.is_main:
        return
    state = session.state_dict() | {
        "config": asdict(trainer.given),
        "resolved": asdict(trainer.config),
        "data": fingerprint(session.data),
        "schema": session.data.schema.to_dict(),
        "phases": {phase.name: phase.state_dict() for phase in trainer.phases},
    }
    folder = trainer.folder.checkpoints
    write_checkpoint(folder, session.step, session.model.state_dict(), state)
    keep = (session.stopping.best_step, *trainer.finalizing.rows_steps, trainer.refitting.start_step)
    prune_checkpoints(folder, keep_last=KEPT, keep=keep)


def read_saved(
    given: TrainConfig, config: ResolvedConfig, data: PreparedData, folder: RunFolder, ranks: Ranks
) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint of a run, which must be of these options and this data, and what is wrong with later
    ones; None for a run that was killed before its first checkpoint.
    """
    found: Any = None
    if ranks.is_main and list_checkpoints(folder.checkpoints):
        latest, damage = read_latest(folder.checkpoints)
        with explained_misfits(latest.path):
            latest = _with_int8_rows(latest, config)
        found = (str(latest.path), latest.step, latest.model, latest.state, damage)
    found = broadcast(found, ranks)
    if found is None:
        return None, []
    path, step, weights, state, damage = found
    checkpoint = Checkpoint(Path(path), step, weights, state)
    _check_begun(checkpoint, given)
    ranks.device(config.device), find_model(config.model)  # neither is the checkpoint's fault
    if checkpoint.get("data", str) != fingerprint(data):
        raise ValueError(f"data must be the data set that the run began with, but {config.data} has changed.")
    return checkpoint, damage


def _with_int8_rows(latest: Checkpoint, config: ResolvedConfig) -> Checkpoint:
    """The last checkpoint of int8 rows, if these were finalized at the end of a run that is now to have more steps."""
    phases = latest.state["phases"]
    if not phases["finalize"]["rows_steps"]:
        return latest
    step, folder = phases["finalize"]["rows_steps"][0], latest.path.parent
    is_trained = latest.state["loader"]["epoch"] >= config.epochs or step >= config.max_steps
    if step == latest.step or phases["train"]["is_stopped"] or is_trained:
        return latest
    found = read_checkpoint(checkpoint_path(folder, step))
    remove_after(folder, step)  # or they would be taken for newer ones
    return found


def _check_begun(checkpoint: Checkpoint, given: TrainConfig) -> None:
    """Reject options that are not those that the run was begun with, as by an edit of its file."""
    with explained_misfits(checkpoint.path):
        begun = make_config(checkpoint.get("config", dict))
    for name, value in vars(given).items():
        if name not in (*MAY_CHANGE, *MAY_MOVE, *MAY_BE_CHOSEN_AGAIN) and value != getattr(begun, name):
            raise ValueError(
                f"{name} in {CONFIG} must be what the run was begun with, {getattr(begun, name)!r}, got {value!r}."
            )


def fingerprint(data: PreparedData) -> str:
    """The checksum of a data set: its manifest holds the checksums of all its files."""
    return hashlib.sha256((data.path / MANIFEST).read_bytes()).hexdigest()
