"""A model and its optimizer, re-clustered: everything that a custom training loop needs.

When to cluster, what becomes of the optimizer's state and of averaged copies, and how several processes share the work.
"""

from cce.reclustering.refit import (
    NumRounds,
    Refit,
    RefitEvent,
    Source,
    check_rounds,
    is_on_parts,
    most_rounds,
    why_stop,
)
from cce.reclustering.repair import POLICIES, repair_optimizer, restart_average
from cce.reclustering.schedule import ClusterSchedule
