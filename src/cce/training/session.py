"""What all phases of a run share: model, optimizer, position in the data, validations; and how options make them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_choice
from cce.collection import EmbeddingCollection
from cce.data import Loader, PreparedData, StreamLoader, unseen_shares
from cce.distributed import ParallelModel, Ranks, current_ranks, sum_over_ranks
from cce.embeddings import Embedding, Finalizable, unshard
from cce.optim import SGD, Adagrad, Adam, AdamW
from cce.reclustering import ClusterSchedule
from cce.training.model import make_model, random_state, restore_random_state
from cce.training.monitoring import PeakMemory, Stopwatch
from cce.training.resolving import ResolvedConfig, count_ids
from cce.training.saving import start_from
from cce.training.scoring import Scores, score
from cce.training.stopping import EarlyStopping

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "sgd": SGD}
SCORED_ROWS = 16_384  # at a time


class Session:
    """A model that is trained on a data set. `weights` are those of a saved model."""

    def __init__(
        self, config: ResolvedConfig, data: PreparedData, *, ranks: Ranks, weights: dict[str, Tensor] | None = None
    ) -> None:
        self.config, self.data, self.ranks = config, data, ranks
        if config.sparse and ranks.world_size > 1:
            got = f"sparse=True and {ranks.world_size} processes"
            raise ValueError(f"method_options sparse needs a single process: several sum dense gradients, got {got}.")
        if not config.stream and not data.num_rows("train"):
            raise ValueError(f"data must have training rows, got none in {config.data}.")
        self.device = ranks.device(config.device)
        load_code(config)
        self.memory = PeakMemory()  # before there are tables
        with self.memory.phase("train"):
            self.model = self._make_model(weights).to(self.device)
        self.loader: Loader | StreamLoader = new_loader(config, data, ranks)
        self.equip()
        self.stopping, self.stopwatch = EarlyStopping(config.metrics[0]), Stopwatch()
        self.curve: list[dict[str, float]] = []  # of validations
        self.step = 0

    def _make_model(self, weights: dict[str, Tensor] | None) -> nn.Module:
        config, schema = self.config, self.data.schema
        model = make_model(vars(config), schema)
        if weights is not None:
            model.load_state_dict(weights)  # before there are optimizers: it may replace parameters
            unshard(model)
        elif config.start_from:
            start_from(model, Path(config.start_from), schema, name=config.model, seed=config.seed)
        elif not config.stream:
            give_rows(model, self.data)
        return model

    def equip(self) -> None:
        """Make what belongs to the parameters as they are now."""
        config = self.config
        how: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
        self.optimizer = create_optimizer(config.optimizer, self.model, **how, options=config.optimizer_options)
        self.parallel = ParallelModel(self.model, self.ranks)

    @property
    def has_int8_rows(self) -> bool:
        return any(isinstance(module, Finalizable) and not module.is_final for module in self.model.modules())

    @property
    def num_rows(self) -> int:
        """Rows of an epoch, or of the part of a stream."""
        return self.loader.num_rows

    @property
    def epoch(self) -> int:
        """The epoch or part under way, from 1; between two of them, and after the last, the one that is done."""
        return self.loader.epoch + (self.loader.position > 0)

    @property
    def rows_trained(self) -> int:
        """Rows of all epochs so far, on all ranks together."""
        return self.loader.rows_given

    def has_rows(self, split: str) -> bool:
        return split in self.data.splits and self.data.num_rows(split) > 0

    def score(self, model: nn.Module, split: str) -> Scores:
        """The scores of a split, the same on every rank."""
        ranks = self.ranks
        batch_size = SCORED_ROWS * ranks.world_size
        loader = self.data.loader(
            split, batch_size=batch_size, shuffle=False, rank=ranks.rank, world_size=ranks.world_size
        )
        return score(model, loader, self.config.metrics, device=self.device, ranks=ranks)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run must know, besides the model and what its phases know."""
        return {
            "step": self.step,
            "optimizers": [self.optimizer.state_dict()],
            "loader": self.loader.state_dict(),
            "stopping": self.stopping.state_dict(),
            "curve": self.curve,
            "seconds": self.stopwatch.seconds,
            "peak_nbytes": self.memory.peaks,
            "random": random_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        (saved,) = state["optimizers"]
        self.optimizer.load_state_dict(saved)
        self.loader.load_state_dict(state["loader"])
        self.stopping.load_state_dict(state["stopping"])
        self.step, self.curve = state["step"], state["curve"]
        self.stopwatch.seconds = dict(state["seconds"])
        self.memory.merge(state["peak_nbytes"])
        restore_random_state(state["random"])


def new_loader(config: ResolvedConfig, data: PreparedData, ranks: Ranks) -> Loader | StreamLoader:
    how: dict[str, Any] = {"batch_size": config.batch_size, "rank": ranks.rank, "world_size": ranks.world_size}
    if config.stream:
        return StreamLoader(data, config.stream, verify=config.verify, **how)
    return data.loader("train", shuffle=config.shuffle, seed=config.seed, **how)


def load_code(config: ResolvedConfig) -> None:
    """Train a table of one id for a step, so that the code of libraries does not count as memory of tables."""
    tables = EmbeddingCollection({"id": 1}, min(config.embedding_dim, 16), seed=0)
    optimizer = create_optimizer(config.optimizer, tables, lr=config.lr)
    tables(torch.zeros(1, 1, dtype=torch.int64)).sum().backward()
    optimizer.step()


def give_rows(model: nn.Module, data: PreparedData) -> None:
    """Give rows to the ids that occur often enough in the training rows, if tables train as int8 rows."""
    for name, table in int8_tables(model).items():
        table.rows.name = f"feature {name!r}"
        if data.schema.vocabulary_sizes[name] is not None:
            table.give_rows(count_ids(data, name))


def int8_tables(model: nn.Module) -> dict[str, Finalizable]:
    """The tables that train as int8 rows, by feature."""
    return {name: table for name, table in _tables_with_rows(model).items() if not table.is_final}


def _tables_with_rows(model: nn.Module) -> dict[str, Finalizable]:
    collections = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    tables = {name: table for collection in collections for name, table in collection.tables.items()}
    return {name: table for name, table in tables.items() if isinstance(table, Finalizable)}


def row_counters(model: nn.Module) -> dict[str, dict[str, int]]:
    """By feature, how many ids have rows, and how many came and went, where any did while the model trained."""
    tables = _tables_with_rows(model)
    found = {name: table.rows.counters for name, table in tables.items()}
    if any(table.rows.shards is not None for table in tables.values()):  # all of them are
        numbers = sum_over_ranks(torch.tensor([list(own.values()) for own in found.values()]), current_ranks())
        found = {
            name: dict(zip(found[name], own, strict=True)) for name, own in zip(found, numbers.tolist(), strict=True)
        }
    return {name: own for name, own in found.items() if any(own[what] for what in own if what != "rows")}


def counters_line(counters: dict[str, dict[str, int]]) -> str:
    """How many ids of all features have rows, and what became of others."""
    total = {name: sum(own[name] for own in counters.values()) for name in ("rows", "refused", "evicted", "expired")}
    others = "".join(f", {number:,} {name}" for name, number in total.items() if name != "rows" and number)
    return f"{total['rows']:,} ids have rows{others}"


def counts_of_tables(model: nn.Module, data: PreparedData) -> dict[str, Tensor]:
    """How often ids of tables of int8 rows with a bound occur in training, by the name of the table's module."""
    paths, sizes = {module: path for path, module in model.named_modules()}, data.schema.vocabulary_sizes
    tables = {name: table for name, table in int8_tables(model).items() if sizes[name] is not None}
    return {paths[table]: count_ids(data, name) for name, table in tables.items()}


def shares_without_row(model: nn.Module, data: PreparedData) -> dict[str, dict[str, float]]:
    """By split and feature, the share of occurrences of ids that have no row, or that training rows do not have."""
    least = {name: table.rows.policy.min_count for name, table in int8_tables(model).items()}
    return unseen_shares(data, least=least)


def build_schedule(config: ResolvedConfig, model: nn.Module, optimizer: Optimizer) -> ClusterSchedule | None:
    """When tables are clustered; None for never."""
    if not config.cluster_at:
        return None
    return ClusterSchedule(
        model, optimizer, at_epochs=config.cluster_at, steps_per_epoch=config.steps_per_epoch, seed=config.seed
    )


def create_optimizer(
    name: str, model: nn.Module, *, lr: float, weight_decay: float = 0.0, options: Mapping[str, Any] | None = None
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
