"""The parts of a run, made as its configuration says."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.checks import check_choice
from cce.clustering import ClusterSettings
from cce.collection import EmbeddingCollection
from cce.embeddings import METHODS
from cce.models import create_model
from cce.reclustering import ClusterSchedule, paper_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from cce.distributed import Ranks
    from cce.schema import Schema
    from cce.training.config import TrainConfig


TUNED_COLUMNS = 8  # the paper has 4; docs/results.md
TUNED_TIMES = 12  # clusterings, two an epoch; the paper has 6, one an epoch


def build_model(config: TrainConfig, schema: Schema) -> nn.Module:
    """The model with its tables, from the seed alone."""
    check_choice("method", config.method, METHODS)
    seed_everything(config.seed)
    with explained_memory(config):
        tables = create_tables(config, schema)
    if config.codebook_dtype != "float32":
        tables.register_forward_hook(_as_float32)
    return create_model(config.model, schema, tables, **config.model_options)


def create_tables(config: TrainConfig, schema: Schema) -> EmbeddingCollection:
    """The tables of all features."""
    return EmbeddingCollection(
        schema.vocabulary_sizes,
        config.embedding_dim,
        method=config.method,
        options={config.method: method_options(config)},
        budget=config.budget,
        unified=config.unified,
        sparse=config.sparse,
        seed=config.seed,
        dtype=getattr(torch, config.codebook_dtype),
    )


@contextmanager
def explained_memory(config: TrainConfig) -> Iterator[None]:
    """Say which options ask for more memory than there is."""
    try:
        yield
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        tables = f"method {config.method!r} and embedding_dim={config.embedding_dim}"
        raise MemoryError(f"tables must fit into memory, but those of {tables} do not.") from error


def _as_float32(tables: nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
    """What a model gets from tables of half the bits."""
    del tables, inputs
    return vectors.float()


def method_options(config: TrainConfig) -> dict[str, Any]:
    """Its `settings`, in a file a table of names and values, are an object here. What is tuned is a default only."""
    options = dict(config.method_options)
    if config.method == "cce" and config.preset == "tuned" and config.embedding_dim % TUNED_COLUMNS == 0:
        options.setdefault("num_columns", TUNED_COLUMNS)
    if isinstance(options.get("settings"), dict):
        try:
            options["settings"] = ClusterSettings(**options["settings"])
        except (TypeError, ValueError) as error:
            raise type(error)(f"method_options settings must be those of ClusterSettings: {error}") from error
    return options


def build_schedule(
    config: TrainConfig,
    model: nn.Module,
    optimizers: list[Optimizer],
    steps_per_epoch: int,
    ranks: Ranks,
) -> ClusterSchedule | None:
    """When tables are clustered; None for never."""
    when: dict[str, Any] = {"every": config.cluster_every, "times": config.cluster_times}
    if config.cluster_at_epochs is not None:
        when = {"at_epochs": config.cluster_at_epochs, "steps_per_epoch": steps_per_epoch}
    elif config.cluster_every is None:
        if config.cluster_schedule == "none":
            return None
        when = {"at_epochs": _at_epochs(config), "steps_per_epoch": steps_per_epoch}
    return ClusterSchedule(model, optimizers, policy=config.cluster_policy, seed=config.seed, ranks=ranks, **when)


def _at_epochs(config: TrainConfig) -> list[float]:
    name = config.cluster_schedule
    if name == "auto":
        is_tuned = config.method == "cce" and config.preset == "tuned"
        several = "twice-an-epoch" if is_tuned else "best-of-10-epochs"
        name = "one-epoch" if config.epochs == 1 else several
    if name == "twice-an-epoch":
        return [(index + 1) / 2 for index in range(config.cluster_times or TUNED_TIMES)]
    return paper_schedule(name, config.cluster_times)


def seed_everything(seed: int) -> None:
    """Start all of them at a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
