"""The paper's rule: stop when the best validation of an epoch is worse than that of the epoch before.

What is best is decided by one metric, the paper's BCE unless another is named.
"""

from __future__ import annotations

import math
from typing import Any

from cce.evaluation import DEFAULT_BEST_BY, find_metric

STATE = ("best", "best_step", "this_epoch", "last_epoch")


class EarlyStopping:
    """Hears of every validation and the end of every epoch; knows the best so far and when it is enough.

    Scores are compared as losses: scores of which more is better are negated.
    """

    def __init__(self, best_by: str = DEFAULT_BEST_BY) -> None:
        self.metric = find_metric(best_by)
        self.best = math.inf  # of all
        self.best_step = -1
        self.this_epoch = math.inf
        self.last_epoch = math.inf

    def add(self, score: float, step: int) -> bool:
        """Note a validation; whether it is the best so far. A score that is not a number never is."""
        loss = self.metric.loss(score)
        self.this_epoch = min(self.this_epoch, loss if not math.isnan(loss) else math.inf)
        if not loss < self.best:
            return False
        self.best, self.best_step = loss, step
        return True

    def end_epoch(self) -> bool:
        """Whether to stop: this epoch's best is worse than the last one's."""
        worse = self.this_epoch > self.last_epoch
        self.last_epoch, self.this_epoch = self.this_epoch, math.inf
        return worse

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        vars(self).update({name: state[name] for name in STATE})
