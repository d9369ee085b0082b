"""Saved runs, to resume or to start another run from.

A run that starts from a trained one has tables as near as they get to the trained ones, whatever their kind. With
`method="pq"` this is the paper's post-training baseline: train the full table, then quantise it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from cce.embeddings import Embedding
from cce.training.checkpoint import DamagedCheckpointError, open_checkpoint
from cce.training.config import MAY_CHANGE, MAY_MOVE
from cce.training.model import load_model, read_schema, trusted_model
from cce.training.options import make_config, read_toml

if TYPE_CHECKING:
    from cce.run_folder import RunFolder
    from cce.schema import Schema


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
def load_weights(
    model: nn.Module,
    trained: nn.Module,
    *,
    generator: torch.Generator,
) -> None:
    """Copy what is the same in both models, and fit the tables that are not."""
    sources = dict(trained.named_modules())
    tables = {name: table for name, table in model.named_modules() if isinstance(table, Embedding)}
    for name, table in tables.items():
        _load_table(table, sources.get(name), name, generator)
    weights = {name: weight for name, weight in trained.state_dict().items() if not _is_inside(name, tables)}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not _is_inside(name, tables)]
    if missing or unexpected:
        raise ValueError(
            f"start_from must name a run of the same model, but {[*missing, *unexpected]} are not in both."
        )


def _load_table(table: Embedding, source: nn.Module | None, name: str, generator: torch.Generator) -> None:
    if not isinstance(source, Embedding) or source.embedding_dim != table.embedding_dim:
        raise ValueError(f"start_from must name a run with a table {name!r} of embedding_dim={table.embedding_dim}.")
    if _shapes(source) == _shapes(table) and type(source) is type(table):
        table.load_state_dict(source.state_dict())
    else:
        table.fit_to(source.to_dense(), generator=generator)


def _shapes(table: Embedding) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in table.state_dict().items() if hasattr(value, "shape")}


def _is_inside(name: str, tables: dict[str, Embedding]) -> bool:
    return any(name.startswith(f"{table}.") for table in tables)
