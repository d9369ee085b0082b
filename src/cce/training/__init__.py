"""Training with tables that are clustered on the way."""

from cce.training.averages import restart_average
from cce.training.cluster_schedule import ClusterSchedule, paper_schedule
from cce.training.optimizer_state import repair_optimizer

__all__ = ["ClusterSchedule", "paper_schedule", "repair_optimizer", "restart_average"]
