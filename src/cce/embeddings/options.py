"""Options of tables, with rules for those of a method, and what a training run does with tables unless it is told."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch

from cce.checks import check_choice, check_number, check_range, shown
from cce.embeddings.initialization import StartScale

Options = dict[str, Any]  # arguments of a constructor, by name
Check = Callable[[str, Any], None]  # of a name and a value
MAX_ROWS = 2**31
PAPER_SCHEDULES = ("best-of-10-epochs", "one-epoch", "strategy-1", "strategy-2", "strategy-3")


class CommonOptions(TypedDict, total=False):
    """Options that every table has beside those of its method: see `Embedding`."""

    padding_idx: int | None
    sparse: bool
    start_scale: StartScale | None
    generator: torch.Generator | None
    device: torch.device | str | None
    dtype: torch.dtype | None


def rules(**checks: Check) -> Mapping[str, Check]:
    """The rules of a class, by the names of its options."""
    return checks


def whole(low: int, high: int = MAX_ROWS) -> Check:
    """An int in `[low, high)`."""
    return lambda name, value: check_range(name, value, low, high)


def choice(*words: str) -> Check:
    """One of these words."""
    return lambda name, value: check_choice(name, value, words)


def within(low: float, high: float) -> Check:
    """A number in `[low, high]`."""

    def check(name: str, value: Any) -> None:
        check_number(name, value, -math.inf)
        if not low <= value <= high:
            raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value}.")

    return check


def share(name: str, value: Any) -> None:
    """A number above 0, up to 1."""
    check_number(name, value)
    if not 0 < value <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {value}.")


def wholes(length: int | None = None) -> Check:
    """A list of ints of at least 1, of this length."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != (length or len(value)):
            raise TypeError(f"{name} must be a list of {f'{length} ' if length else ''}ints, got {shown(value)}.")
        for each in value:
            check_range(name, each, 1, 2**63)

    return check


def optional(check: Check) -> Check:
    """None, or what `check` accepts."""
    return lambda name, value: None if value is None else check(name, value)


@dataclass(frozen=True)
class TrainingDefaults:
    """The defaults of a method in a training run; without arguments, those of a method that has nothing to say.

    num_rows: as many values a table may have as this many vectors, where there is no budget; None if one must be given.
    min_count: occurrences in training after which an id has a row; None if the method has no rows to earn.
    trains_as_rows: whether tables train as int8 rows, to be finalized afterwards, and clustered at no other time.
    refits: rounds of refits after that.
    """

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
