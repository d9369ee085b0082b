"""The parts of a run, made as its resolved configuration says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_choice
from cce.collection import EmbeddingCollection
from cce.data import PreparedData, unseen_shares
from cce.embeddings import Embedding, Finalizable
from cce.optim import SGD, Adagrad, Adam, AdamW
from cce.reclustering import ClusterSchedule
from cce.training.model import make_model
from cce.training.resolving import ResolvedConfig, count_ids

if TYPE_CHECKING:
    from cce.schema import Schema

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "sgd": SGD}


def build_model(config: ResolvedConfig, schema: Schema) -> nn.Module:
    """The model with its tables, from the seed alone."""
    return make_model(vars(config), schema)


def give_rows(model: nn.Module, data: PreparedData) -> None:
    """Give rows to the ids that occur often enough in the training rows, if tables train as int8 rows."""
    tables = int8_tables(model)
    counts = count_ids(data) if tables else {}
    for name, table in tables.items():
        table.rows.name = f"feature {name!r}"
        table.give_rows(counts[name])


def int8_tables(model: nn.Module) -> dict[str, Finalizable]:
    """The tables that train as int8 rows, by feature."""
    collections = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    tables = {name: table for collection in collections for name, table in collection.tables.items()}
    return {name: table for name, table in tables.items() if isinstance(table, Finalizable) and not table.is_final}


def counts_of_tables(model: nn.Module, data: PreparedData) -> dict[str, Tensor]:
    """How often each id of each table of int8 rows occurs in training, by the name of the table's module."""
    counts, paths = count_ids(data), {module: path for path, module in model.named_modules()}
    return {paths[table]: counts[name] for name, table in int8_tables(model).items()}


def shares_without_row(model: nn.Module, data: PreparedData) -> dict[str, dict[str, float]]:
    """By split and feature, the share of occurrences of ids that have no row, or that training rows do not have."""
    least = {name: table.rows.min_count for name, table in int8_tables(model).items()}
    return unseen_shares(data.path, data.splits, data.schema, least=least)


def build_schedule(config: ResolvedConfig, model: nn.Module, optimizer: Optimizer) -> ClusterSchedule | None:
    """When tables are clustered; None for never."""
    if not config.cluster_at:
        return None
    return ClusterSchedule(
        model, optimizer, at_epochs=config.cluster_at, steps_per_epoch=config.steps_per_epoch, seed=config.seed
    )


def create_optimizer(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> Optimizer:
    """One optimizer for all parameters, int8 rows included.

    weight_decay: of the tables alone; 0 is none, whatever the optimizer's default is.
    options: further arguments; `row_lr`, the learning rate of int8 rows, goes with them.
    """
    check_choice("optimizer", name, OPTIMIZERS)
    arguments: dict[str, Any] = {"lr": lr, **(options or {}), "weight_decay": weight_decay}
    if not any(isinstance(module, Finalizable) and not module.is_final for module in model.modules()):
        arguments.pop("row_lr", None)
    of_tables = {id(p) for table in model.modules() if isinstance(table, Embedding) for p in table.parameters()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [{"params": trained}]
    if weight_decay:
        rest = [parameter for parameter in trained if id(parameter) not in of_tables]
        groups = [
            {"params": [parameter for parameter in trained if id(parameter) in of_tables]},
            {"params": rest, "weight_decay": 0.0},
        ]
    try:
        return OPTIMIZERS[name](groups, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        given = ", ".join(f"{argument}={value!r}" for argument, value in arguments.items())
        raise ValueError(f"optimizer {name!r} could not be made with {given}: {error}") from error


def set_learning_rate(optimizer: Optimizer, lr: float, step: int, *, schedule: str, total_steps: int) -> None:
    """Set the learning rate of step number `step`, counted from 0: constant, or falling to zero in a line or along a
    cosine. It follows from the step, so a resumed run has nothing to remember.
    """
    done = min(1.0, step / max(1, total_steps))
    falls = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    check_choice("schedule", schedule, falls)
    for group in optimizer.param_groups:
        group["lr"] = lr * falls[schedule]
