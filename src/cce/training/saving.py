"""Runs saved and restored: to resume, to look at, or to start another run from.

A checkpoint holds the session, every phase, and the options. A run that starts from a trained one has tables as near as
they get to the trained ones, whatever their kind: with `method="pq"` this is the paper's post-training baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from cce.data import MANIFEST, PreparedData, checksum
from cce.distributed import Ranks, broadcast
from cce.embeddings import Embedding, model_state
from cce.models import find_model
from cce.run_folder import CONFIG, RunFolder
from cce.schema import Schema
from cce.training.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    checkpoint_path,
    explained_misfits,
    list_checkpoints,
    open_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    read_latest,
    remove_after,
    write_checkpoint,
)
from cce.training.config import MAY_BE_CHOSEN_AGAIN, MAY_CHANGE, MAY_MOVE, TrainConfig, make_config, read_toml
from cce.training.model import load_model, read_schema, trusted_model
from cce.training.resolving import ResolvedConfig

if TYPE_CHECKING:
    from cce.training.trainer import Trainer

KEPT = 2  # checkpoints, besides the best, those of int8 rows and the one that refits begin with


def save_run(trainer: Trainer) -> None:
    """Write a checkpoint, and remove those that are no longer needed."""
    session, model = trainer.session, model_state(trainer.session.model)
    if not session.ranks.is_main:
        return
    state = session.state_dict() | {
        "config": asdict(trainer.given),
        "resolved": asdict(trainer.config),
        "data": checksum(session.data.path / MANIFEST),  # which holds the checksums of all files
        "schema": session.data.schema.to_dict(),
        "phases": {phase.name: phase.state_dict() for phase in trainer.phases},
    }
    folder = trainer.folder.checkpoints
    write_checkpoint(folder, session.step, model, state)
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
    if checkpoint.get("data", str) != checksum(data.path / MANIFEST):
        raise ValueError(f"data must be the data set that the run began with, but {config.data} has changed.")
    return checkpoint, damage


def _with_int8_rows(latest: Checkpoint, config: ResolvedConfig) -> Checkpoint:
    """The last checkpoint of int8 rows, if these were finalized, and the run is now to have more steps.

    A stream is always to have more.
    """
    phases = latest.state["phases"]
    if not phases["finalize"]["rows_steps"]:
        return latest
    step, folder = phases["finalize"]["rows_steps"][0], latest.path.parent
    if not config.stream:
        is_trained = latest.state["loader"]["epoch"] >= config.epochs or step >= config.max_steps
        if step == latest.step or phases["train"]["is_stopped"] or is_trained:
            return latest
    found = read_checkpoint(checkpoint_path(folder, step))
    remove_after(folder, step)  # or they would be taken for newer ones
    return found


def _check_begun(checkpoint: Checkpoint, given: TrainConfig) -> None:
    """Reject options that are not those that the run was begun with, as by an edit of its file."""
    with explained_misfits(checkpoint.path):
        begun = make_config({k: v for k, v in checkpoint.get("config", dict).items() if v is not None})
    if bool(begun.stream) != bool(given.stream):
        raise ValueError("stream goes with a run that was begun with it, or that goes on with it, alone.")
    for name, value in vars(given).items():
        if name not in (*MAY_CHANGE, *MAY_MOVE, *MAY_BE_CHOSEN_AGAIN) and value != getattr(begun, name):
            raise ValueError(
                f"{name} in {CONFIG} must be what the run was begun with, {getattr(begun, name)!r}, got {value!r}."
            )


def read_run_options(
    folder: RunFolder, changes: Mapping[str, Any], *, may: Sequence[str] = (*MAY_CHANGE, *MAY_MOVE)
) -> dict[str, Any]:
    """The options of the run in a folder, with those changes that a run may see; None takes an option away."""
    for name in changes:
        if name not in may:
            raise ValueError(f"{name} does not go with resume, which may change {', '.join(may)} only.")
    if not folder.is_begun:
        raise FileNotFoundError(f"resume must name the folder of a run, got {str(folder.path)!r}.")
    values = read_options(folder)
    model = trusted_model(make_config(values).model, changes.get("model"), folder.config)
    return {name: value for name, value in {**values, **changes, "model": model}.items() if value is not None}


def read_options(folder: RunFolder) -> dict[str, Any]:
    """The options in the folder of a run, which are checked."""
    values = read_toml(folder.config)
    try:
        make_config(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{folder.config} must hold the options of a run: {error}") from error
    return values


def start_from(model: nn.Module, run: Path, schema: Schema, *, name: str, seed: int) -> None:
    """Make `model`, whose name is `name`, as near as it gets to the best checkpoint of a run, or to a checkpoint.

    Both must be of the same kind of model, so no code is run that the user did not name.
    """
    try:
        checkpoint, damage = open_checkpoint(run, best=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"start_from must name a run or a checkpoint, got {str(run)!r}: {error}") from error
    if damage:
        raise DamagedCheckpointError(
            f"start_from must name a run whose last and best checkpoints are whole: {damage[0]}"
        )
    if read_schema(checkpoint) != schema:
        raise ValueError(f"start_from must name a run on the same data set, got {str(run)!r}, which had other columns.")
    _, trained = load_model(checkpoint, model=name)
    load_weights(model, trained, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def load_weights(model: nn.Module, trained: nn.Module, *, generator: torch.Generator) -> None:
    """Copy what is the same in both models, and fit the tables that are not."""
    sources = dict(trained.named_modules())
    tables = {name: table for name, table in model.named_modules() if isinstance(table, Embedding)}
    for name, table in tables.items():
        source = sources.get(name)
        if not isinstance(source, Embedding) or source.embedding_dim != table.embedding_dim:
            raise ValueError(
                f"start_from must name a run with a table {name!r} of embedding_dim={table.embedding_dim}."
            )
        if _shapes(source) == _shapes(table) and type(source) is type(table):
            table.load_state_dict(source.state_dict())
        else:
            table.fit_to(source.to_dense(), generator=generator)
    weights = {name: weight for name, weight in trained.state_dict().items() if not _is_inside(name, tables)}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not _is_inside(name, tables)]
    if missing or unexpected:
        raise ValueError(
            f"start_from must name a run of the same model, but {[*missing, *unexpected]} are not in both."
        )


def _shapes(table: Embedding) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in table.state_dict().items() if hasattr(value, "shape")}


def _is_inside(name: str, tables: dict[str, Embedding]) -> bool:
    return any(name.startswith(f"{table}.") for table in tables)
