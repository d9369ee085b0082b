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
from cce.embeddings import METHODS, Clusterable, Embedding, TrainingDefaults, paper_schedule
from cce.models import create_model
from cce.reclustering import ClusterSchedule, Refit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from cce.data import PreparedData
    from cce.schema import Batch, Schema
    from cce.training.config import TrainConfig

NETWORK_PARAMS = 1000  # a model with fewer beside its tables has no network
COUNTED_ROWS = 1 << 16  # in which ids are counted at a time
CODE_STATE_NBYTES = 2  # of an id in codes, besides the codes
SMALLEST_NBYTES = 1 << 20  # that a refit may hold
REFITTED_TABLES = 4  # at most, without being asked, unless there are rows enough
ROWS_PER_ID = 4  # of ids with pointers, that are enough
REFITTED_VALUES = 1 << 26  # of vectors, that are refitted without being asked: 4 million ids of 16


def build_model(config: TrainConfig, schema: Schema, *, coded: bool = False) -> nn.Module:
    """The model with its tables, or with the codes that they train as, from the seed alone."""
    check_choice("method", config.method, METHODS)
    seed_everything(config.seed)
    with explained_memory(config):
        tables = create_tables(config, schema)
        if coded and isinstance(tables, EmbeddingCollection):
            _let_be_codes(tables, code_bits(config), seed=config.seed)
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


def _let_be_codes(tables: EmbeddingCollection, bits: int, *, seed: int) -> None:
    """Put codes in the place of the tables that can train as codes."""
    generator = torch.Generator().manual_seed(seed)
    for name, table in tables.tables.items():
        assert isinstance(table, Embedding)
        codes = table.as_codes(bits, generator=generator)
        if codes is not None:
            tables.tables[name] = codes


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


def num_refits(config: TrainConfig) -> int:
    """Rounds of refits: those of the method, unless the options say it, or where tables start."""
    if config.refits is not None:
        return config.refits
    return method_defaults(config).refits if _trains_as_codes(config) else 0


def code_bits(config: TrainConfig) -> int:
    """Bits of the codes that tables train as; 0 for none."""
    if config.code_bits is not None:
        return config.code_bits
    return method_defaults(config).code_bits if _trains_as_codes(config) else 0


def _trains_as_codes(config: TrainConfig) -> bool:
    """Whether tables of a method with codes train as codes: not where they start from other tables."""
    return config.start_from is None


def method_options(config: TrainConfig) -> dict[str, Any]:
    """Its `settings`, in a file a table of names and values, are an object here."""
    options = {**_start_options(config, config.method), **config.method_options}
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
    """`config` with its budget, its rounds of refits, and the ids of each feature that have learned pointers."""
    config = with_budget(config)
    return complete_config(config, data.schema.vocabulary_sizes, cache(lambda: count_ids(data)))


def with_budget(config: TrainConfig) -> TrainConfig:
    """`config` with the cap that the method of its tables would have, if nothing else is said."""
    num_rows = method_defaults(config).num_rows
    if not config.budget.is_full or config.method in FULL_SIZED:
        return config
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
    if not method_defaults(config).code_bits:
        return _with_num_learned(config, count)
    is_told = config.refits is not None
    config = _with_num_learned(replace(config, refits=num_refits(config), code_bits=code_bits(config)), count)
    if is_told or not config.refits or _is_worth_refits(config, vocabularies, count):
        return config
    return replace(config, refits=0)


def check_learning_of(config: TrainConfig) -> None:
    """Reject options of codes and refits for a method without them, and of clusterings for one that has them."""
    learns_from_codes = method_defaults(config).code_bits > 0
    for name in () if learns_from_codes else ("code_bits", "code_epochs", "refits"):
        if getattr(config, name):
            got = f"{name}={getattr(config, name)} with method {config.method!r}"
            raise ValueError(f"{name} must be left out where no table trains as codes, got {got}.")
    if learns_from_codes and config.says_when_to_cluster and config.cluster_schedule != "none":
        raise ValueError(
            f"method {config.method!r} is clustered once, after its codes are trained: leave out when to cluster, or "
            f"take method {PAPER_METHOD!r}."
        )
    if learns_from_codes and config.code_bits == 0 and _trains_as_codes(config):
        raise ValueError(f"code_bits must be 8 or 16 with method {config.method!r}, got 0.")
    if config.code_epochs is not None and not code_bits(config):
        raise ValueError(f"code_epochs must be left out where no table trains as codes, got {config.code_epochs}.")


def _is_worth_refits(
    config: TrainConfig, vocabularies: Mapping[str, int], count: Callable[[], Mapping[str, Tensor]] | None
) -> bool:
    """Whether there are few enough tables with pointers, or rows enough for the ids that have them; and not too many.

    With many tables, each of which could explain a row, and few rows for each of their ids, refits are no better than
    codes (docs/codes.md).
    """
    planned = plan_tables(vocabularies, config.embedding_dim, **table_arguments(config)).tables
    learned = {table.name for table in planned if table.method == config.method}
    num_ids = sum(config.num_learned.get(name, vocabularies[name]) for name in learned)
    if num_ids * config.embedding_dim > REFITTED_VALUES:
        return False
    if len(learned) <= REFITTED_TABLES:
        return True
    num_rows = 0 if count is None else max(int(count()[name].sum()) for name in learned)
    return ROWS_PER_ID * num_ids <= num_rows


def _with_num_learned(config: TrainConfig, count: Callable[[], Mapping[str, Tensor]] | None) -> TrainConfig:
    """`config` with the number of ids of each feature that have learned pointers, if their counts are known.

    The vector of an id that was seen twice says little about it, so clustering it adds nothing, takes centroids from
    ids that matter, and its pointer costs as much as any: such ids stay hashed, or share a vector.
    `docs/results.md` has the measurement.
    """
    defaults = method_defaults(config)
    min_count = config.learned_min_count or defaults.min_count or 1
    is_given = bool(config.num_learned) or "num_learned" in config.method_options
    if count is None or defaults.min_count is None or min_count == 1 or is_given:
        return config
    num_learned = {name: defaults.num_learned(counts, min_count=min_count) for name, counts in count().items()}
    return replace(config, num_learned=num_learned)


def count_ids(data: PreparedData) -> dict[str, Tensor]:
    """How often each id of each feature occurs in the training rows."""
    counts = {feature.name: torch.zeros(feature.num_embeddings, dtype=torch.int64) for feature in data.schema.features}
    for batch in data.loader("train", batch_size=COUNTED_ROWS, shuffle=False):
        for index, count in enumerate(counts.values()):
            count.add_(torch.bincount(_ids_of(batch, index), minlength=len(count)))
    return counts


def _ids_of(batch: Batch, index: int) -> Tensor:
    if batch.offsets is None:
        return batch.ids[:, index]
    num_rows = len(batch.labels)
    first, last = batch.offsets[index * num_rows], batch.offsets[(index + 1) * num_rows]
    return batch.ids[int(first) : int(last)]


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
        max_nbytes=config.refit_nbytes or _codes_nbytes(config, data.schema),
    )
    return refit if refit.features else None  # None: every table is small enough to be full


def _codes_nbytes(config: TrainConfig, schema: Schema) -> int | None:
    """About what codes hold in training; None if there are none."""
    bits = code_bits(config)
    if not bits:
        return None
    row = config.embedding_dim * bits // 8 + CODE_STATE_NBYTES
    num_ids = sum(config.num_learned.get(name, size) for name, size in schema.vocabulary_sizes.items())
    return max(num_ids * row, SMALLEST_NBYTES)


def _has_network(model: nn.Module) -> bool:
    """Whether there is more to train between refits than a few factors."""
    of_tables = {id(p) for module in model.modules() if isinstance(module, Clusterable) for p in module.parameters()}
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
