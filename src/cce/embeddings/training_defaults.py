"""What a training run does with the tables of a method unless it is told: options, clusterings, ids with pointers.

Training asks every method, `Embedding.training_defaults(preset)`, and knows none. Most have nothing to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cce.checks import check_choice, check_range

PAPER_SCHEDULES = ("best-of-10-epochs", "one-epoch", "strategy-1", "strategy-2", "strategy-3")


@dataclass(frozen=True)
class TrainingDefaults:
    """The defaults of a method in a training run; without arguments, those of a method that has nothing to say.

    options: arguments of the constructor.
    num_rows: as many values a table may have as so many vectors, where there is no budget; None if one must be given.
    min_count: occurrences in training after which an id has a row; None if the method has no rows to earn.
    trains_as_rows: whether tables train as int8 rows, to be finalized afterwards, and clustered at no other time.
    refits: rounds of refits after that.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    num_rows: int | None = None
    min_count: int | None = None
    trains_as_rows: bool = False
    refits: int = 0

    def cluster_epochs(self, num_epochs: int, times: int | None = None) -> list[float]:
        """After how many epochs tables are clustered in a run of `num_epochs`, for `ClusterSchedule(at_epochs=…)`."""
        check_range("num_epochs", num_epochs, 0, 2**63)
        if self.trains_as_rows:
            return []
        return paper_schedule("one-epoch" if num_epochs == 1 else "best-of-10-epochs", times)


def paper_schedule(name: str, times: int | None = None) -> list[float]:
    """The paper's schedules, in fractions of an epoch, for `ClusterSchedule(at_epochs=…)`.

    best-of-10-epochs: once an epoch, 6 times. one-epoch: after 1/4 and 1/2. strategy-1 and -2 (appendix): `times`
    clusterings, evenly spaced, the last after 1/2 or 2/3 of the epoch. strategy-3: evenly spaced over the epoch, with
    a rest as long as the interval after the last.
    """
    check_choice("name", name, PAPER_SCHEDULES)
    defaults = {"best-of-10-epochs": 6, "one-epoch": 2}
    times = defaults.get(name, 2) if times is None else times
    check_range("times", times, 1, 2**31)
    last = {"best-of-10-epochs": times, "one-epoch": 1 / 2, "strategy-1": 1 / 2, "strategy-2": 2 / 3}
    end = last.get(name, times / (times + 1))
    return [end * (index + 1) / times for index in range(times)]
