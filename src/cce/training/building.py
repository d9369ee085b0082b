"""The parts of a run, made as its configuration says."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from cce.checks import check_choice
from cce.clustering import ClusterSettings
from cce.collection import EmbeddingCollection
from cce.embeddings import METHODS
from cce.models import MODELS, create_model, find_model
from cce.reclustering import ClusterSchedule, paper_schedule
from cce.schema import Schema
from cce.training.checkpoint import explained_misfits
from cce.training.config import CONFIG, MAY_CHANGE, MAY_MOVE, TrainConfig, make_config, read_toml, upgrade_options
from cce.training.random_state import seed_everything

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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
    with explained_memory(config):
        tables = create_tables(config, schema)
    if config.codebook_dtype != "float32":
        tables.register_forward_hook(_as_float32)
    return create_model(config.model, schema, tables, **config.model_options)


def create_tables(config: TrainConfig, schema: Schema) -> EmbeddingCollection:
    """The tables of all features."""
    budget = {"cap": config.cap, "num_params": config.num_params, "compression": config.compression}
    return EmbeddingCollection(
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


def load_model(
    checkpoint: Checkpoint, *, model: str | None = None, trust_model: bool = False
) -> tuple[TrainConfig, nn.Module]:
    """The configuration and the model of a checkpoint, whose code is run only if it is `model`, or trusted."""
    with explained_misfits(checkpoint.path):
        config = make_config(upgrade_options(checkpoint.get("config", dict)))
    config = replace(config, model=trusted_model(config.model, model, checkpoint.path, trust_model=trust_model))
    find_model(config.model)  # what is wrong with its file is not the checkpoint's fault
    with explained_misfits(checkpoint.path):
        made = build_model(config, read_schema(checkpoint))
        made.load_state_dict(checkpoint.model)
    return config, made


def trusted_model(name: str, given: str | None, where: Path, *, trust_model: bool) -> str:
    """The model's name, or the one that was given again. A saved name may lead to anyone's code: it must be trusted."""
    if given is None and name not in MODELS and not trust_model:
        hint = "give the model again (--model), or --trust-model if you know who made it"
        raise PermissionError(f"model of {where} must be trusted, as its code would be run, got {name!r}: {hint}.")
    return name if given is None else given


def read_run_options(out: Path, changes: Mapping[str, Any], *, trust_model: bool) -> dict[str, Any]:
    """The options of the run in a folder, with those changes that a run may see."""
    may = (*MAY_CHANGE, *MAY_MOVE)
    for name in changes:
        if name not in may:
            raise ValueError(f"{name} does not go with resume, which may change {', '.join(may)} only.")
    path = out / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"resume must name the folder of a run, got {str(out)!r}.")
    values = read_toml(path, upgrade=True)
    try:
        config = make_config(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path} must hold the options of a run: {error}") from error
    model = trusted_model(config.model, changes.get("model"), path, trust_model=trust_model)
    return {**values, **changes, "model": model}


def read_schema(checkpoint: Checkpoint) -> Schema:
    """The columns that a checkpoint was trained on."""
    with explained_misfits(checkpoint.path):
        return Schema.from_dict(checkpoint.get("schema", dict))


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
