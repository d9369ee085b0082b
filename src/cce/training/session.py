"""The state of a run: model, optimizers, schedule, position in the data, random numbers; saved and restored."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cce.data import MANIFEST
from cce.distributed import ParallelModel, Ranks, broadcast
from cce.embeddings import Finalizable
from cce.models import find_model
from cce.optim import RowOptimizer
from cce.run_folder import CONFIG, RunFolder
from cce.training.building import build_model, build_refit, build_schedule, give_rows
from cce.training.checkpoint import (
    Checkpoint,
    checkpoint_path,
    explained_misfits,
    list_checkpoints,
    prune_checkpoints,
    read_checkpoint,
    read_latest,
    remove_after,
    write_checkpoint,
)
from cce.training.config import MAY_CHANGE, MAY_MOVE
from cce.training.loading import start_from
from cce.training.monitoring import Stopwatch
from cce.training.optimizers import create_optimizers, learning_rate_factor, set_learning_rate
from cce.training.options import make_config
from cce.training.random_numbers import random_state, restore_random_state
from cce.training.scoring import group_column, score
from cce.training.stopping import EarlyStopping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from cce.data import PreparedData
    from cce.schema import Batch
    from cce.training.config import TrainConfig
    from cce.training.scoring import Scores


class Session:
    """Everything that changes during a run. `weights` are those of a saved model."""

    def __init__(
        self,
        config: TrainConfig,
        data: PreparedData,
        *,
        ranks: Ranks,
        weights: dict[str, Tensor] | None = None,
    ) -> None:
        self.config, self.data, self.ranks = config, data, ranks
        if config.sparse and ranks.world_size > 1:
            got = f"sparse=True and {ranks.world_size} processes"
            raise ValueError(f"sparse must be False with several processes, which sum dense gradients, got {got}.")
        self.device = ranks.device(config.device)
        self.groups = None if config.group_by is None else group_column(data.schema, config.group_by)
        model = build_model(config, data.schema)
        if weights is not None:
            model.load_state_dict(weights)  # before there are optimizers: it may replace parameters
        elif config.start_from is not None:
            start_from(model, Path(config.start_from), data.schema, name=config.model, seed=config.seed)
        else:
            give_rows(model, data)
        self.model = model.to(self.device)
        self.loader = data.loader(
            "train",
            batch_size=config.batch_size // config.accumulate,
            shuffle=config.shuffle,
            seed=config.seed,
            rank=ranks.rank,
            world_size=ranks.world_size,
        )
        self.num_rows = data.num_rows("train")
        if not self.num_rows:
            raise ValueError(f"data must have training rows, got none in {config.data}.")
        self.steps_per_epoch = -(-self.num_rows // config.batch_size)
        self.total_steps = min(config.epochs * self.steps_per_epoch, config.max_steps or 2**63)
        self.equip()
        self.stopping, self.stopwatch = EarlyStopping(config.best_by), Stopwatch()
        self.trained_nbytes: dict[str, dict[str, int]] = {}  # what tables held that are final now
        self.rows_steps: list[int] = []  # the last step of int8 rows and their best, which more epochs go on from
        self.num_refits = 0
        self.curve: list[dict[str, float]] = []  # of validations
        self.step, self.is_stopped = 0, False
        self.loss_sum, self.loss_rows = 0.0, 0  # since the last line of the log

    def equip(self) -> None:
        """Make what belongs to the tables as they are now."""
        config = self.config
        self.has_int8_rows = any(isinstance(m, Finalizable) and not m.is_final for m in self.model.modules())
        self.optimizers = self.new_optimizers()
        self.parallel = ParallelModel(self.model, self.ranks)
        self.schedule, self.refit = None, None
        if not self.has_int8_rows:
            self.schedule = build_schedule(config, self.model, self.optimizers, self.steps_per_epoch)
            self.refit = build_refit(config, self.model, self.data)

    def new_optimizers(self) -> list[Optimizer]:
        """Optimizers of all that requires gradients now, as the configuration says."""
        config = self.config
        return create_optimizers(
            config.optimizer,
            self.model,
            lr=config.lr,
            row_lr=config.row_lr,
            weight_decay=config.weight_decay,
            network_weight_decay=config.network_weight_decay,
            options=config.optimizer_options,
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do but the test."""
        is_refitted = self.refit is None or self.num_refits >= (self.config.refits or 0)
        return self.is_trained and not self.has_int8_rows and is_refitted

    @property
    def is_trained(self) -> bool:
        """Whether all epochs are done, or enough of them."""
        return (
            self.is_stopped or self.loader.epoch >= self.config.epochs or self.step >= (self.config.max_steps or 2**63)
        )

    @property
    def epoch(self) -> int:
        """The epoch under way, from 1; between two of them, and after the last, the one that is done."""
        return self.loader.epoch + (self.loader.position > 0)

    @property
    def rows_trained(self) -> int:
        """Rows of all epochs so far, on all ranks together."""
        return self.loader.epoch * self.num_rows + self.loader.position

    def batches(self) -> Iterator[tuple[list[Batch], int]]:
        """The rest of the epoch: the pieces of each batch, and how many rows it has on all ranks together."""
        pieces: list[Batch] = []
        start = self.loader.position
        for piece in self.loader:
            pieces.append(piece)
            if len(pieces) == self.config.accumulate or self.loader.position == self.num_rows:
                yield pieces, self.loader.position - start
                pieces, start = [], self.loader.position

    def validation_positions(self) -> set[int]:
        """The rows of an epoch after which there is a validation: so many times, the last at its end."""
        if not self.has_rows("validation"):
            return set()
        times = self.config.validations_per_epoch
        steps = {max(1, round(self.steps_per_epoch * (index + 1) / times)) for index in range(times)}
        return {min(step * self.config.batch_size, self.num_rows) for step in steps}

    def has_rows(self, split: str) -> bool:
        """Whether there is something to score."""
        return split in self.data.splits and self.data.num_rows(split) > 0

    def score(self, model: nn.Module, split: str) -> Scores:
        """The scores of a split, the same on every rank."""
        ranks, config = self.ranks, self.config
        batch_size = config.evaluation_batch_size * ranks.world_size
        loader = self.data.loader(
            split, batch_size=batch_size, shuffle=False, rank=ranks.rank, world_size=ranks.world_size
        )
        with self.autocast():
            return score(
                *(model, loader, config.metrics),
                device=self.device,
                groups=self.groups,
                streaming=config.auc == "streaming",
                ranks=ranks,
            )

    def autocast(self) -> Any:
        """The precision that networks are computed in."""
        is_half = self.config.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16) if is_half else nullcontext()

    def set_learning_rate(self) -> None:
        """Set the learning rate of the next step."""
        factor = learning_rate_factor(
            self.step,
            schedule=self.config.lr_schedule,
            warmup_steps=self.config.warmup_steps,
            total_steps=self.total_steps,
        )
        set_learning_rate(self.optimizers, self.config.lr * factor)

    def save(self, folder: RunFolder) -> None:
        """Write a checkpoint, and remove those that are no longer needed."""
        if self.schedule is not None:
            self.schedule.add_up_counts()
        if self.ranks.is_main:
            weights, lagging = self._caught_up_weights()
            write_checkpoint(folder.checkpoints, self.step, weights, self.state_dict() | {"lagging": lagging})
            keep = (self.stopping.best_step, *self.rows_steps)
            prune_checkpoints(folder.checkpoints, keep_last=self.config.keep_last, keep=keep)

    def catch_up(self) -> None:
        """Give rows the weight decay that they lack, before they are read."""
        for optimizer in self.row_optimizers:
            optimizer.catch_up()

    @property
    def row_optimizers(self) -> list[RowOptimizer]:
        """The optimizers whose weight decay is lazy."""
        return [optimizer for optimizer in self.optimizers if isinstance(optimizer, RowOptimizer)]

    def _caught_up_weights(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The model as it will be when rows have caught up, and what lags as it is now: to go on to the bit."""
        new = {tensor: value for optimizer in self.row_optimizers for tensor, value in optimizer.caught_up().items()}
        lagging = {name: p.detach() for name, p in self.model.named_parameters(remove_duplicate=False) if p in new}
        weights = self.model.state_dict(keep_vars=True)
        return {name: new.get(weight, weight).detach() for name, weight in weights.items()}, lagging

    @classmethod
    def restore(
        cls, config: TrainConfig, data: PreparedData, folder: RunFolder, *, ranks: Ranks
    ) -> tuple[Session, list[str]]:
        """The run as its newest whole checkpoint has it, and what is wrong with those that came after."""
        found: Any = None
        if ranks.is_main and list_checkpoints(folder.checkpoints):
            latest, damage = read_latest(folder.checkpoints)
            with explained_misfits(latest.path):
                latest = _with_int8_rows(latest, config)
            found = (str(latest.path), latest.step, latest.model, latest.state, damage)
        found = broadcast(found, ranks)
        if found is None:  # killed before the first checkpoint
            return cls(config, data, ranks=ranks), []
        path, step, weights, state, damage = found
        checkpoint = Checkpoint(Path(path), step, weights, state)
        _check_begun(checkpoint, config)
        ranks.device(config.device), find_model(config.model)  # neither is the checkpoint's fault
        if checkpoint.get("data", str) != fingerprint(data):
            raise ValueError(f"data must be the data set that the run began with, but {config.data} has changed.")
        with explained_misfits(checkpoint.path):
            session = cls(config, data, ranks=ranks, weights=weights)
            session.load_state_dict(state)
        return session, damage

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run must know, besides the model."""
        return {
            "step": self.step,
            "config": asdict(self.config),
            "data": fingerprint(self.data),
            "schema": self.data.schema.to_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "loader": self.loader.state_dict(),
            "stopping": self.stopping.state_dict(),
            "is_stopped": self.is_stopped,
            "has_int8_rows": self.has_int8_rows,
            "trained_nbytes": self.trained_nbytes,
            "rows_steps": self.rows_steps,
            "num_refits": self.num_refits,
            "refit": None if self.refit is None else self.refit.state_dict(),
            "curve": self.curve,
            "loss": [self.loss_sum, self.loss_rows],
            "seconds": self.stopwatch.seconds,
            "random": random_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        lagging, parameters = state.get("lagging", {}), dict(self.model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for name, values in lagging.items():
                parameters[name].copy_(values)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.loader.load_state_dict(state["loader"])
        self.stopping.load_state_dict(state["stopping"])
        self.step, self.is_stopped, self.curve = state["step"], state["is_stopped"], state["curve"]
        self.trained_nbytes, self.rows_steps = state["trained_nbytes"], state["rows_steps"]
        if self.refit is not None and self.is_trained:  # or there are more epochs now, and refits come after them
            self.num_refits = state["num_refits"]
            self.refit.load_state_dict(state["refit"])
        self.loss_sum, self.loss_rows = state["loss"]
        self.stopwatch.seconds = dict(state["seconds"])
        restore_random_state(state["random"])


def _with_int8_rows(latest: Checkpoint, config: TrainConfig) -> Checkpoint:
    """The last checkpoint of int8 rows, if these were finalized at the end of a run that is now to have more steps."""
    state, most = latest.state, config.max_steps or 2**63
    if state["has_int8_rows"] or not state["rows_steps"]:
        return latest
    step, folder = state["rows_steps"][0], latest.path.parent
    if state["is_stopped"] or state["loader"]["epoch"] >= config.epochs or step >= most:
        return latest
    found = read_checkpoint(checkpoint_path(folder, step))
    remove_after(folder, step)  # or they would be taken for newer ones
    return found


def _check_begun(checkpoint: Checkpoint, config: TrainConfig) -> None:
    """Reject options that are not those that the run was begun with, as by an edit of its file."""
    with explained_misfits(checkpoint.path):
        begun = make_config(checkpoint.get("config", dict))
    for name, value in vars(config).items():
        if name not in (*MAY_CHANGE, *MAY_MOVE) and value != getattr(begun, name):
            raise ValueError(
                f"{name} in {CONFIG} must be what the run was begun with, {getattr(begun, name)!r}, got {value!r}."
            )


def fingerprint(data: PreparedData) -> str:
    """The checksum of a data set: its manifest holds the checksums of all its files."""
    return hashlib.sha256((data.path / MANIFEST).read_bytes()).hexdigest()
