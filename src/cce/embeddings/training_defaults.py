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
TWICE_AN_EPOCH = "twice-an-epoch"
NEVER = "none"
TUNED_TIMES = 12  # clusterings, two an epoch; the paper has 6, one an epoch


@dataclass(frozen=True)
class TrainingDefaults:
    """The defaults of a method in a training run; without arguments, those of a method that has no preset.

    options: arguments of the constructor.
    num_rows: as many values a table may have as so many vectors, where there is no budget; None if one must be given.
    min_count: ids that occur less often in training stay hashed; None if the method has no pointers to learn.
    schedule: name of the schedule of runs of several epochs; "none" for no clusterings, unless their number is given.
    learned: what is different in a run whose pointers come from codes or refits, which then clusters at no other time.
    code_bits: of the codes that tables train as in a run that says nothing about clustering; 0 for none.
    refits: rounds of refits of such a run.
    says_how_to_cluster: arguments of the constructor that say something about it.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    num_rows: int | None = None
    min_count: int | None = None
    schedule: str = "best-of-10-epochs"
    learned: TrainingDefaults | None = None
    code_bits: int = 0
    refits: int = 0
    says_how_to_cluster: frozenset[str] = frozenset()

    def with_codes_and_refits(self, code_bits: int, num_refits: int) -> TrainingDefaults:
        """The defaults of a run with codes of so many bits and so many rounds of refits."""
        return self.learned if (code_bits or num_refits) and self.learned is not None else self

    def options_for(self, embedding_dim: int) -> dict[str, Any]:
        """Arguments of the constructor of a table of vectors this wide."""
        del embedding_dim
        return dict(self.options)

    def cluster_epochs(self, num_epochs: int, times: int | None = None) -> list[float]:
        """After how many epochs tables are clustered in a run of `num_epochs`, for `ClusterSchedule(at_epochs=…)`."""
        check_range("num_epochs", num_epochs, 0, 2**63)
        if self.schedule == NEVER and times is None:
            return []
        schedule = TWICE_AN_EPOCH if self.schedule == NEVER else self.schedule
        return named_schedule("one-epoch" if num_epochs == 1 else schedule, times)

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


def named_schedule(name: str, times: int | None = None) -> list[float]:
    """Any schedule that has a name: one of the paper's, or "twice-an-epoch", 12 times unless told."""
    if name != TWICE_AN_EPOCH:
        return paper_schedule(name, times)
    times = TUNED_TIMES if times is None else times
    check_range("times", times, 1, 2**31)
    return [(index + 1) / 2 for index in range(times)]
