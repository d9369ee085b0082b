"""The parts of a run, made as its configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cce.checks import check_choice
from cce.clustering import ClusterSettings
from cce.collection import EmbeddingCollection
from cce.embeddings import METHODS
from cce.models import create_model
from cce.schema import Schema
from cce.training.cluster_schedule import ClusterSchedule, paper_schedule
from cce.training.config import TrainConfig, make_config
from cce.training.random_state import seed_everything

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from cce.distributed import Ranks
    from cce.training.checkpoint import Checkpoint


TUNED_COLUMNS = 8  # the paper has 4; docs/results.md
TUNED_TIMES = 12  # clusterings, two an epoch; the paper has 6, one an epoch


def build_model(config: TrainConfig, schema: Schema) -> nn.Module:
    """The model with its tables, from the seed alone."""
    check_choice("method", config.method, METHODS)
    seed_everything(config.seed)
    budget = {"cap": config.cap, "num_params": config.num_params, "compression": config.compression}
    tables = EmbeddingCollection(
        schema.vocabulary_sizes,
        config.embedding_dim,
        method=config.method,
        options={config.method: method_options(config)},
        num_learned=config.num_learned or None,
        unified=config.unified,
        sparse=config.sparse,
        seed=config.seed,
        dtype=getattr(torch, config.codebook_dtype),
        **(budget if config.method != "full" else {}),  # type: ignore[arg-type]
    )
    if config.codebook_dtype != "float32":
        tables.register_forward_hook(_as_float32)
    return create_model(config.model, schema, tables, **config.model_options)


def _as_float32(tables: nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
    """What a model gets from tables of half the bits."""
    del tables, inputs
    return vectors.float()


def load_model(checkpoint: Checkpoint) -> tuple[TrainConfig, nn.Module]:
    """The configuration and the model of a checkpoint."""
    config = make_config(checkpoint.state["config"])
    model = build_model(config, Schema.from_dict(checkpoint.state["schema"]))
    model.load_state_dict(checkpoint.model)
    return config, model


def method_options(config: TrainConfig) -> dict[str, Any]:
    """Its `settings`, in a file a table of names and values, are an object here. What is tuned is a default only."""
    options = dict(config.method_options)
    if config.method == "cce" and config.preset == "tuned" and config.embedding_dim % TUNED_COLUMNS == 0:
        options.setdefault("num_columns", TUNED_COLUMNS)
    if isinstance(options.get("settings"), dict):
        options["settings"] = ClusterSettings(**options["settings"])
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
    if config.cluster_at is not None:
        when = {"at": config.cluster_at, "steps_per_epoch": steps_per_epoch}
    elif config.cluster_every is None:
        if config.schedule == "none":
            return None
        when = {"at": _moments(config), "steps_per_epoch": steps_per_epoch}
    return ClusterSchedule(model, optimizers, policy=config.cluster_policy, seed=config.seed, ranks=ranks, **when)


def _moments(config: TrainConfig) -> list[float]:
    name = config.schedule
    if name == "auto":
        is_tuned = config.method == "cce" and config.preset == "tuned"
        several = "twice-an-epoch" if is_tuned else "best-of-10-epochs"
        name = "one-epoch" if config.epochs == 1 else several
    if name == "twice-an-epoch":
        return [(index + 1) / 2 for index in range(config.cluster_times or TUNED_TIMES)]
    return paper_schedule(name, config.cluster_times)
