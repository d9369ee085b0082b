"""What a training run does with the tables of a method unless it is told: options, clusterings, ids with pointers.

Training asks every method, `Embedding.training_defaults(preset)`, and knows none. Most have nothing to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from cce.checks import check_choice, check_range, check_type

if TYPE_CHECKING:
    from collections.abc import Mapping

PAPER_SCHEDULES = ("best-of-10-epochs", "one-epoch", "strategy-1", "strategy-2", "strategy-3")


@dataclass(frozen=True)
class TrainingDefaults:
    """The defaults of a method in a training run; without arguments, those of a method that has nothing to say.

    options: arguments of the constructor.
    num_rows: as many values a table may have as so many vectors, where there is no budget; None if one must be given.
    min_count: ids that occur less often in training stay hashed; None if the method has no pointers to learn.
    code_bits: of the codes that tables train as, to be fitted to them afterwards; 0 for none. Such tables are clustered
        at no other time.
    refits: rounds of refits after that.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    num_rows: int | None = None
    min_count: int | None = None
    code_bits: int = 0
    refits: int = 0

    def cluster_epochs(self, num_epochs: int, times: int | None = None) -> list[float]:
        """After how many epochs tables are clustered in a run of `num_epochs`, for `ClusterSchedule(at_epochs=…)`."""
        check_range("num_epochs", num_epochs, 0, 2**63)
        if self.code_bits:
            return []
        return paper_schedule("one-epoch" if num_epochs == 1 else "best-of-10-epochs", times)

    def num_learned(self, counts: Tensor, *, min_count: int | None = None) -> int:
        """How many ids, from the first on, learn pointers where id `x` occurs `counts[x]` times in training.

        As many as occur `min_count` times: ids must be numbered by falling count, as `cce prepare` does, but for 0,
        "unseen or missing", which always learns.
        """
        check_type("counts", counts, Tensor, "a Tensor")
        if counts.dim() != 1 or not len(counts):
            raise ValueError(f"counts must have shape (num_embeddings,), got {tuple(counts.shape)}.")
        least = self.min_count if min_count is None else min_count
        if least is None:
            return 0
        check_range("min_count", least, 1, 2**63)
        return len(counts) if least == 1 else 1 + int((counts[1:] >= least).sum())


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
