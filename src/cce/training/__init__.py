"""Training with tables that are clustered on the way.

Names are loaded when they are first used: the options of a run can be told without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.training.averages import restart_average
    from cce.training.cluster_schedule import ClusterSchedule, paper_schedule
    from cce.training.config import TrainConfig
    from cce.training.optimizer_state import repair_optimizer
    from cce.training.trainer import Trainer

__all__ = ["ClusterSchedule", "TrainConfig", "Trainer", "paper_schedule", "repair_optimizer", "restart_average"]

_HOMES = {
    "ClusterSchedule": "cluster_schedule",
    "TrainConfig": "config",
    "Trainer": "trainer",
    "paper_schedule": "cluster_schedule",
    "repair_optimizer": "optimizer_state",
    "restart_average": "averages",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cce.training' has no attribute {name!r}")
    return getattr(import_module(f"cce.training.{_HOMES[name]}"), name)
