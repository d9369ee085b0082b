"""The learning rate at each step: a linear warm-up, then constant, or falling to zero in a line or along a cosine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cce.checks import check_choice
from cce.training.config import LR_SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer


def learning_rate_factor(step: int, *, schedule: str, warmup_steps: int, total_steps: int) -> float:
    """What the learning rate is multiplied by at step number `step`, counted from 0."""
    check_choice("schedule", schedule, LR_SCHEDULES)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    done = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


def set_learning_rate(optimizers: Iterable[Optimizer], lr: float) -> None:
    """Set the learning rate of every group. It follows from the step, so a resumed run has nothing to remember."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
