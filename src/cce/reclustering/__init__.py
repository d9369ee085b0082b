"""A model and its optimizer, re-clustered: everything that a custom training loop needs.

When to cluster, what becomes of the optimizer's state and of averaged copies, and how several processes share the work.
"""

from cce.reclustering.averages import restart_average
from cce.reclustering.repair import POLICIES, repair_optimizer
from cce.reclustering.schedule import PAPER_SCHEDULES, ClusterSchedule, paper_schedule

__all__ = ["PAPER_SCHEDULES", "POLICIES", "ClusterSchedule", "paper_schedule", "repair_optimizer", "restart_average"]
