"""What all phases of a run share: model, optimizers, position in the data, validations; and its scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cce.distributed import ParallelModel, Ranks
from cce.embeddings import Finalizable
from cce.training.building import build_model, create_optimizer, give_rows
from cce.training.monitoring import PeakMemory, Stopwatch
from cce.training.random_numbers import random_state, restore_random_state
from cce.training.saving import start_from
from cce.training.scoring import Scores, group_column, score
from cce.training.stopping import EarlyStopping

if TYPE_CHECKING:
    from cce.data import PreparedData
    from cce.training.resolving import ResolvedConfig

SCORED_ROWS = 16_384  # at a time


class Session:
    """A model that is trained on a data set. `weights` are those of a saved model."""

    def __init__(
        self,
        config: ResolvedConfig,
        data: PreparedData,
        *,
        ranks: Ranks,
        weights: dict[str, Tensor] | None = None,
    ) -> None:
        self.config, self.data, self.ranks = config, data, ranks
        if config.sparse and ranks.world_size > 1:
            got = f"sparse=True and {ranks.world_size} processes"
            raise ValueError(f"method_options sparse needs a single process: several sum dense gradients, got {got}.")
        self.num_rows = data.num_rows("train")
        if not self.num_rows:
            raise ValueError(f"data must have training rows, got none in {config.data}.")
        self.device = ranks.device(config.device)
        self.groups = group_column(data.schema, config.group_by) if config.group_by else None
        self.memory = PeakMemory()  # before there are tables
        model = build_model(config, data.schema)
        if weights is not None:
            model.load_state_dict(weights)  # before there are optimizers: it may replace parameters
        elif config.start_from:
            start_from(model, Path(config.start_from), data.schema, name=config.model, seed=config.seed)
        else:
            give_rows(model, data)
        self.model = model.to(self.device)
        self.loader = data.loader(
            "train",
            batch_size=config.batch_size,
            shuffle=config.shuffle,
            seed=config.seed,
            rank=ranks.rank,
            world_size=ranks.world_size,
        )
        self.equip()
        self.stopping, self.stopwatch = EarlyStopping(config.best_by), Stopwatch()
        self.curve: list[dict[str, float]] = []  # of validations
        self.step = 0

    def equip(self) -> None:
        """Make what belongs to the parameters as they are now."""
        self.optimizer = self.new_optimizer()
        self.parallel = ParallelModel(self.model, self.ranks)

    def new_optimizer(self) -> Optimizer:
        """An optimizer of all that requires gradients now, as the configuration says."""
        config = self.config
        how: dict[str, Any] = {
            "lr": config.lr,
            "weight_decay": config.weight_decay,
            "options": config.optimizer_options,
        }
        return create_optimizer(config.optimizer, self.model, **how)

    @property
    def has_int8_rows(self) -> bool:
        """Whether a table still trains as int8 rows."""
        return any(isinstance(module, Finalizable) and not module.is_final for module in self.model.modules())

    @property
    def epoch(self) -> int:
        """The epoch under way, from 1; between two of them, and after the last, the one that is done."""
        return self.loader.epoch + (self.loader.position > 0)

    @property
    def rows_trained(self) -> int:
        """Rows of all epochs so far, on all ranks together."""
        return self.loader.epoch * self.num_rows + self.loader.position

    def has_rows(self, split: str) -> bool:
        """Whether there is something to score."""
        return split in self.data.splits and self.data.num_rows(split) > 0

    def score(self, model: nn.Module, split: str) -> Scores:
        """The scores of a split, the same on every rank."""
        ranks = self.ranks
        batch_size = SCORED_ROWS * ranks.world_size
        loader = self.data.loader(
            split, batch_size=batch_size, shuffle=False, rank=ranks.rank, world_size=ranks.world_size
        )
        return score(model, loader, self.config.metrics, device=self.device, groups=self.groups, ranks=ranks)

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
        """Go on where `state_dict` was taken."""
        (saved,) = state["optimizers"]
        self.optimizer.load_state_dict(saved)
        self.loader.load_state_dict(state["loader"])
        self.stopping.load_state_dict(state["stopping"])
        self.step, self.curve = state["step"], state["curve"]
        self.stopwatch.seconds = dict(state["seconds"])
        self.memory.merge(state["peak_nbytes"])
        restore_random_state(state["random"])
