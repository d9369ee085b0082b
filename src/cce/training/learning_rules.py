"""When and how tables learn pointers, said in one way: clusterings and refits. No torch here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cce.training.config import TrainConfig


def check_learning(config: TrainConfig) -> None:
    """Reject options that contradict each other, or themselves."""
    _check_when(config)


def _check_when(config: TrainConfig) -> None:
    ways = {"cluster_every": config.cluster_every, "cluster_at_epochs": config.cluster_at_epochs}
    given = [name for name, value in ways.items() if value is not None]
    given += [f"cluster_schedule={config.cluster_schedule!r}"] if config.cluster_schedule != "auto" else []
    if len(given) > 1:
        names = "cluster_every, cluster_at_epochs and cluster_schedule"
        raise ValueError(f"give one of {names}, got {' and '.join(given)}.")
    if config.cluster_at_epochs is None:
        return
    if config.cluster_times is not None:
        raise ValueError("cluster_times does not go with cluster_at_epochs, which lists all clusterings.")
    epochs = config.cluster_at_epochs if isinstance(config.cluster_at_epochs, list) else []
    if not epochs or not all(type(epoch) in (int, float) and 0 < epoch < math.inf for epoch in epochs):
        raise ValueError(f"cluster_at_epochs must be a list of numbers above 0, got {config.cluster_at_epochs!r}.")
