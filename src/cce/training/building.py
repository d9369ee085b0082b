"""The parts of a run, made as its configuration says, and for the rest as the method of its tables would have it."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.budget import FULL, FULL_SIZED, PAPER_METHOD
from cce.checks import check_choice
from cce.clustering import ClusterSettings
from cce.collection import EmbeddingCollection, plan_tables
from cce.data import unseen_shares
from cce.embeddings import METHODS, Clusterable, Finalizable, TrainingDefaults, paper_schedule
from cce.models import create_model
from cce.reclustering import ClusterSchedule, Refit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from cce.data import PreparedData
    from cce.schema import Schema
    from cce.training.config import TrainConfig

NETWORK_PARAMS = 1000  # a model with fewer beside its tables has no network
REFITTED_TABLES = 4  # at most, without being asked, unless there are rows enough
ROWS_PER_ID = 4  # of ids with pointers, that are enough
REFITTED_VALUES = 1 << 26  # of vectors, that are refitted without being asked: 4 million ids of 16


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
        **table_arguments(config),
        sparse=config.sparse,
        seed=config.seed,
        dtype=getattr(torch, config.codebook_dtype),
    )


def table_arguments(config: TrainConfig) -> dict[str, Any]:
    """What says how the tables of a run are made and sized, as `plan_tables` and `EmbeddingCollection` take it."""
    return {
        "method": config.method,
        "options": {FULL: _start_options(config, FULL), config.method: method_options(config)},
        "budget": config.budget,
    }


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


def method_defaults(config: TrainConfig) -> TrainingDefaults:
    """What the method of the tables would have, where the configuration does not say."""
    check_choice("method", config.method, METHODS)
    return METHODS[config.method].training_defaults(config.preset)


def trains_as_rows(config: TrainConfig) -> bool:
    """Whether tables of the method train as int8 rows, which are finalized afterwards."""
    return method_defaults(config).trains_as_rows


def num_refits(config: TrainConfig) -> int:
    """Rounds of refits: those of the method, unless the options say it, or where tables start."""
    if config.refits is not None:
        return config.refits
    return method_defaults(config).refits if config.start_from is None and config.max_steps is None else 0


def method_options(config: TrainConfig) -> dict[str, Any]:
    """Its `settings`, in a file a table of names and values, are an object here."""
    options = {**_start_options(config, config.method), **config.method_options}
    if config.min_count is not None:
        options["min_count"] = config.min_count
    if isinstance(options.get("settings"), dict):
        try:
            options["settings"] = ClusterSettings(**options["settings"])
        except (TypeError, ValueError) as error:
            raise type(error)(f"method_options settings must be those of ClusterSettings: {error}") from error
    return options


def _start_options(config: TrainConfig, method: str) -> dict[str, Any]:
    """What a method would have, and the start of the vectors if the configuration says it."""
    start = {} if config.start_scale == "auto" else {"start_scale": config.start_scale}
    return {**METHODS[method].training_defaults(config.preset).options, **start}


def with_defaults(config: TrainConfig, data: PreparedData) -> TrainConfig:
    """`config` with its budget and its rounds of refits."""
    return complete_config(with_budget(config), data.schema.vocabulary_sizes, cache(lambda: count_ids(data)))


def with_budget(config: TrainConfig) -> TrainConfig:
    """`config` with the cap that the method of its tables would have, if nothing else is said."""
    if not config.budget.is_full or config.method in FULL_SIZED:
        return config
    num_rows = method_defaults(config).num_rows
    if num_rows is None:
        given = f"method {config.method!r}"
        raise ValueError(f"give one of cap, num_params, nbytes and compression with {given}, got none.")
    return replace(config, cap=num_rows * config.embedding_dim)


def complete_config(
    config: TrainConfig, vocabularies: Mapping[str, int], count: Callable[[], Mapping[str, Tensor]] | None
) -> TrainConfig:
    """The configuration of a run on vocabularies of these sizes.

    By default there are no refits of many tables with few rows for each id, nor of so many ids that a round would read
    the rows again and again.

    count: how often each id occurs, asked for where it matters; None if nobody knows.
    """
    check_learning_of(config)
    if not trains_as_rows(config):
        return config
    is_told = config.refits is not None
    config = replace(config, refits=num_refits(config))
    if is_told or not config.refits or _is_worth_refits(config, vocabularies, count):
        return config
    return replace(config, refits=0)


def check_learning_of(config: TrainConfig) -> None:
    """Reject options of int8 rows and refits for a method without them, and of clusterings for one that has them."""
    if not trains_as_rows(config):
        for name in ("row_lr", "refits", "min_count"):
            if getattr(config, name):
                got = f"{name}={getattr(config, name)} with method {config.method!r}"
                raise ValueError(f"{name} must be left out where no table trains as int8 rows, got {got}.")
    elif config.says_when_to_cluster and config.cluster_schedule != "none":
        raise ValueError(
            f"method {config.method!r} is clustered once, after its rows are trained: leave out when to cluster, or "
            f"take method {PAPER_METHOD!r}."
        )


def _is_worth_refits(
    config: TrainConfig, vocabularies: Mapping[str, int], count: Callable[[], Mapping[str, Tensor]] | None
) -> bool:
    """Whether there are few enough tables with pointers, or rows enough for the ids that have them; and not too many.

    With many tables, each of which could explain a row, and few rows for each of their ids, refits are no better than
    codes (docs/lifecycle.md).
    """
    planned = plan_tables(vocabularies, config.embedding_dim, **table_arguments(config)).tables
    learned = {table.name for table in planned if table.method == config.method}
    num_ids = sum(_num_rows(config, name, vocabularies, count) for name in learned)
    if num_ids * config.embedding_dim > REFITTED_VALUES:
        return False
    if len(learned) <= REFITTED_TABLES:
        return True
    num_rows = 0 if count is None else max(int(count()[name].sum()) for name in learned)
    return ROWS_PER_ID * num_ids <= num_rows


def _num_rows(
    config: TrainConfig,
    name: str,
    vocabularies: Mapping[str, int],
    count: Callable[[], Mapping[str, Tensor]] | None,
) -> int:
    """How many ids of a feature will have rows."""
    least = config.min_count or method_defaults(config).min_count or 1
    return vocabularies[name] if count is None else int((count()[name] >= least).sum())


def give_rows(model: nn.Module, data: PreparedData) -> None:
    """Give rows to the ids that occur often enough in the training rows, if tables train as int8 rows."""
    tables = _int8_tables(model)
    counts = count_ids(data) if tables else {}
    for name, table in tables.items():
        table.rows.name = f"feature {name!r}"
        table.give_rows(counts[name])


def _int8_tables(model: nn.Module) -> dict[str, Finalizable]:
    """The tables that train as int8 rows, by feature."""
    collections = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    tables = {name: table for collection in collections for name, table in collection.tables.items()}
    return {name: table for name, table in tables.items() if isinstance(table, Finalizable) and not table.is_final}


def count_ids(data: PreparedData) -> dict[str, Tensor]:
    """How often each id of each feature occurs in the training rows."""
    return {name: torch.from_numpy(counts) for name, counts in data.count_ids("train").items()}


def counts_of_tables(model: nn.Module, data: PreparedData) -> dict[str, Tensor]:
    """How often each id of each table of int8 rows occurs in training, by the name of the table's module."""
    counts, paths = count_ids(data), {module: path for path, module in model.named_modules()}
    return {paths[table]: counts[name] for name, table in _int8_tables(model).items()}


def shares_without_row(model: nn.Module, data: PreparedData) -> dict[str, dict[str, float]]:
    """By split and feature, the share of occurrences of ids that have no row, or that training rows do not have."""
    least = {name: table.rows.min_count for name, table in _int8_tables(model).items()}
    return unseen_shares(data.path, data.splits, data.schema, least=least)


def build_refit(config: TrainConfig, model: nn.Module, data: PreparedData) -> Refit | None:
    """What refits the tables after the last epoch; None for nothing. After codes it holds no more than they did."""
    if not num_refits(config):
        return None
    has_network = config.refit_network == "always" or (config.refit_network == "auto" and _has_network(model))
    refit = Refit(
        model,
        data.rows("train"),
        folds=2 + has_network,
        spare_fold=has_network,
        max_nbytes=config.refit_nbytes,
    )
    return refit if refit.features else None  # None: every table is small enough to be full


def _has_network(model: nn.Module) -> bool:
    """Whether there is more to train between refits than a few factors."""
    tables = (module for module in model.modules() if isinstance(module, Clusterable | Finalizable))
    of_tables = {id(parameter) for table in tables for parameter in table.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in of_tables) >= NETWORK_PARAMS


def build_schedule(
    config: TrainConfig,
    model: nn.Module,
    optimizers: list[Optimizer],
    steps_per_epoch: int,
) -> ClusterSchedule | None:
    """When tables are clustered; None for never."""
    when: dict[str, Any] = {"every": config.cluster_every, "times": config.cluster_times}
    if config.cluster_at_epochs is not None:
        when = {"at_epochs": config.cluster_at_epochs, "steps_per_epoch": steps_per_epoch}
    elif config.cluster_every is None:
        at_epochs = _at_epochs(config)
        if not at_epochs:
            return None
        when = {"at_epochs": at_epochs, "steps_per_epoch": steps_per_epoch}
    return ClusterSchedule(model, optimizers, policy=config.cluster_policy, seed=config.seed, **when)


def _at_epochs(config: TrainConfig) -> list[float]:
    """After how many epochs tables are clustered by the schedule that has a name."""
    if config.cluster_schedule == "none":
        return []
    if config.cluster_schedule == "auto":
        return method_defaults(config).cluster_epochs(config.epochs, config.cluster_times)
    return paper_schedule(config.cluster_schedule, config.cluster_times)


def seed_everything(seed: int) -> None:
    """Start all of them at a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
