"""The paper's rule: stop when the best validation BCE of an epoch is worse than that of the epoch before."""

from __future__ import annotations

import math
from typing import Any


class EarlyStopping:
    """Told every validation and the end of every epoch; knows the best so far and when it is enough."""

    def __init__(self) -> None:
        self.best = math.inf  # of all
        self.best_step = -1
        self.this_epoch = math.inf
        self.last_epoch = math.inf

    def add(self, bce: float, step: int) -> bool:
        """Note a validation; whether it is the best so far. A BCE that is not a number never is."""
        self.this_epoch = min(self.this_epoch, bce if not math.isnan(bce) else math.inf)
        if not bce < self.best:
            return False
        self.best, self.best_step = bce, step
        return True

    def end_epoch(self) -> bool:
        """Whether to stop: this epoch's best is worse than the last one's."""
        worse = self.this_epoch > self.last_epoch
        self.last_epoch, self.this_epoch = self.this_epoch, math.inf
        return worse

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        vars(self).update(state)
