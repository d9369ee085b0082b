"""The parts of a run, made as its resolved configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.optim import Optimizer

from cce.collection import EmbeddingCollection
from cce.data import PreparedData, unseen_shares
from cce.embeddings import Clusterable, Finalizable
from cce.reclustering import ClusterSchedule, Refit, Rows
from cce.training.model import make_model
from cce.training.resolving import ResolvedConfig, count_ids

if TYPE_CHECKING:
    from cce.schema import Schema

NETWORK_PARAMS = 1000  # a model with fewer beside its tables has no network


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


def build_refit(config: ResolvedConfig, model: nn.Module, rows: Rows) -> Refit | None:
    """What refits the tables after training; None for nothing, as where every table is small enough to be full.

    A network is trained between rounds, on a third of the rows.
    """
    if not config.refits:
        return None
    has_network = _has_network(model)
    refit = Refit(model, rows, folds=2 + has_network, spare_fold=has_network)
    return refit if refit.features else None


def _has_network(model: nn.Module) -> bool:
    """Whether there is more to train between refits than a few factors."""
    tables = (module for module in model.modules() if isinstance(module, Clusterable | Finalizable))
    of_tables = {id(parameter) for table in tables for parameter in table.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in of_tables) >= NETWORK_PARAMS


def build_schedule(config: ResolvedConfig, model: nn.Module, optimizer: Optimizer) -> ClusterSchedule | None:
    """When tables are clustered; None for never."""
    if not config.cluster_at:
        return None
    return ClusterSchedule(
        model, optimizer, at_epochs=config.cluster_at, steps_per_epoch=config.steps_per_epoch, seed=config.seed
    )
