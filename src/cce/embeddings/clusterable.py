"""Tables that learn their H while they train, and what they say after each time."""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from cce.checks import check_type
from cce.embeddings.base import Embedding
from cce.indexing import check_generator, check_index_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn

    from cce.clustering import ClusterSettings
    from cce.indexing import IdCounts


@dataclass(frozen=True)
class RowTransfer:
    """Which rows of a parameter changed their meaning, so that an optimizer's state can be made to follow.

    Row `new_rows[i]` took over `counts[i]` ids (of a sample) from row `old_rows[i]`. Rows `restarted` began again, as
    rows `old_restarted` had been. The parameter may have another number of rows than before.
    """

    parameter: nn.Parameter
    new_rows: Tensor
    old_rows: Tensor
    counts: Tensor
    restarted: Tensor
    old_restarted: Tensor
    num_old_rows: int


@dataclass(frozen=True)
class ClusterEvent:
    """What one clustering did. Churn, entropies and distance are measured on the sampled ids."""

    num_ids: int  # whose pointers were learned
    num_rows: int  # of each column's codebook
    seconds: dict[str, float]  # by step
    inertias: tuple[float, ...]  # of each column's k-means on the sample
    churn: float  # share of pointers that changed, whatever the rows are called
    dead_rows: int  # that no id points to, over all columns
    overfull_rows: int  # that hold more than eight times the mean number of ids
    entropies_before: tuple[float, ...]  # H1, H2
    entropies_after: tuple[float, ...]
    moved: float  # root mean square change of the vectors, relative to their size
    transfer: RowTransfer | None = field(default=None, repr=False)  # what an optimizer must repair
    replaced: dict[nn.Parameter, nn.Parameter | None] = field(default_factory=dict, repr=False)  # new objects

    @property
    def total_seconds(self) -> float:
        """All steps together."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class StagedClustering:
    """A clustering that is computed and has not taken effect: the table is as it was until `apply`."""

    event: ClusterEvent
    apply: Callable[[], None]  # the table becomes what was learned, whole or not at all


class Clusterable(Embedding):
    """A table that can be clustered between two steps of training."""

    settings: ClusterSettings
    counts: IdCounts | None  # how often ids occurred, where the table keeps count

    def cluster(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> ClusterEvent:
        """Learn H from the table as it is now, in place, all or nothing; `counts` say how often each id occurs.

        Where several ranks train, all must call this, and it raises if they learned different pointers.
        """
        staged = self.stage(counts=counts, generator=generator)
        staged.apply()
        check_index_state({"the table": self})
        return staged.event

    @abstractmethod
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """Do all the work of `cluster` and leave the table as it is, so that several tables can change together."""

    @property
    @abstractmethod
    def can_cluster(self) -> bool:
        """Whether there is anything left to learn."""


def check_plain_parameters(table: Clusterable) -> None:
    """Reject a parametrized table: what is written into a computed tensor is lost at the next use."""
    for name in ("codebook", "projection"):
        if getattr(table, name, None) is not None and name not in table._parameters:
            raise ValueError(
                f"{name} must be a parameter to be clustered, got one computed from others: "
                "remove the parametrization (weight_norm, spectral_norm, pruning) first."
            )


def check_clustering(
    table: Clusterable, counts: Tensor | None, num_ids: int, generator: torch.Generator | None
) -> None:
    """Reject a parametrized table, a count that is missing for an id that is clustered, and what is no generator."""
    check_plain_parameters(table)
    check_generator(generator)
    if counts is None:
        return
    check_type("counts", counts, Tensor, "a Tensor")
    if counts.dim() != 1 or len(counts) < num_ids:
        raise ValueError(f"counts must have shape ({num_ids},), one count per id, got {tuple(counts.shape)}.")
    if len(counts) and not bool((counts.min() >= 0) & counts.max().isfinite()):
        raise ValueError(f"counts must be finite and not negative, got values from {counts.min()} to {counts.max()}.")


class StepTimer:
    """Seconds by step: `with timer("fit"): …`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Time the block."""
        started = time.perf_counter()
        yield
        self.seconds[step] = time.perf_counter() - started


@contextmanager
def clean_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C inside a compiled loop, which numba wraps in SystemErrors."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            cause = cause.__cause__
        raise
