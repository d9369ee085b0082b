"""A run that starts from a trained one: tables of another kind become the nearest to those that were trained.

With `method="pq"` this is the paper's post-training baseline: train the full table, then quantise it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.embeddings import Embedding
from cce.training.building import load_model, read_schema
from cce.training.checkpoint import DamagedCheckpointError, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from cce.schema import Schema


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
    take_over(model, trained, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def take_over(model: nn.Module, trained: nn.Module, *, generator: torch.Generator) -> None:
    """Copy what is the same in both models, and approximate the tables that are not."""
    sources = dict(trained.named_modules())
    tables = {name: table for name, table in model.named_modules() if isinstance(table, Embedding)}
    for name, table in tables.items():
        _take_over_table(table, sources.get(name), name, generator)
    weights = {name: weight for name, weight in trained.state_dict().items() if not _is_inside(name, tables)}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not _is_inside(name, tables)]
    if missing or unexpected:
        raise ValueError(
            f"start_from must name a run of the same model, but {[*missing, *unexpected]} are not in both."
        )


def _take_over_table(table: Embedding, source: nn.Module | None, name: str, generator: torch.Generator) -> None:
    if not isinstance(source, Embedding) or source.embedding_dim != table.embedding_dim:
        raise ValueError(f"start_from must name a run with a table {name!r} of {table.embedding_dim} numbers a vector.")
    if _shapes(source) == _shapes(table) and type(source) is type(table):
        table.load_state_dict(source.state_dict())
    else:
        table.approximate(source.to_dense(), generator=generator)


def _shapes(table: Embedding) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in table.state_dict().items() if hasattr(value, "shape")}


def _is_inside(name: str, tables: dict[str, Embedding]) -> bool:
    return any(name.startswith(f"{table}.") for table in tables)
