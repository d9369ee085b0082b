"""Tables that learn their H while they train or after it, what a clustering reports, and many clustered at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.checks import check_type
from cce.compiled import parallel_for
from cce.embeddings.base import Embedding
from cce.indexing import check_generator, check_index_state, common_generator
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from cce.clustering import ClusterSettings
    from cce.embeddings.int8_rows import Int8Rows

SMALL_IDS = 1 << 18  # tables of fewer ids are clustered side by side, each on one core


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
    """What one clustering did. Churn and entropies are measured on the sampled ids."""

    num_ids: int  # whose pointers were learned
    num_rows: int  # of each column's codebook
    seconds: float  # that it took to learn them
    inertias: tuple[float, ...]  # of each column's k-means on the sample
    churn: float  # share of pointers that changed, whatever the rows are called
    dead_rows: int  # that no id points to, over all columns
    entropies: tuple[float, ...]  # H1, H2 of the new pointers
    transfer: RowTransfer | None = field(default=None, repr=False)  # what an optimizer must repair
    replaced: dict[nn.Parameter, nn.Parameter | None] = field(default_factory=dict, repr=False)  # new objects


@dataclass(frozen=True)
class StagedClustering:
    """A clustering that is computed and has not taken effect: the table is as it was until `apply`."""

    event: ClusterEvent
    apply: Callable[[], None]  # the table becomes what was learned, whole or not at all


class Clusterable(Embedding):
    """A table that can be clustered between two steps of training."""

    settings: ClusterSettings

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


class Finalizable(Embedding):
    """A table of int8 rows while it trains, and of something smaller after `finalize`."""

    rows: Int8Rows
    num_columns: int  # of the compact form
    num_rows: int  # of each column of it
    anchor: nn.Parameter  # stands for the rows in an optimizer

    @property
    @abstractmethod
    def is_final(self) -> bool:
        """Whether the table has its compact form."""

    @abstractmethod
    def give_rows(self, counts: Tensor) -> None:
        """Give rows to ids that occur often enough in training, by counts `(num_embeddings,)`, and to no others."""

    def check_not_averaged(self) -> None:
        """Reject an average of models: int8 rows are not averaged, and stand for no step of the average."""
        self.rows.check_not_averaged(self.anchor)


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


def cluster_all(tables: Mapping[str, Clusterable], generator: torch.Generator | None = None) -> list[ClusterEvent]:
    """Cluster every table, each with its own random numbers; if one cannot be, none is.

    The keys say in an error which table it was. Where several ranks train, all must call this.
    """
    staged = stage_all(tables, generator)
    with uninterrupted():
        for each in staged.values():
            each.apply()
    check_index_state(tables)
    return [each.event for each in staged.values()]


def stage_all(
    tables: Mapping[str, Clusterable],
    generator: torch.Generator | None = None,
    *,
    is_mine: Callable[[str], bool] | None = None,
) -> dict[str, StagedClustering]:
    """Compute the clusterings of all tables, or of some if others have the rest; all tables stay as they are.

    A table's random numbers do not depend on who clusters it. Large tables come one after another, as each of them uses
    all cores; small ones run side by side. The result does not depend on that.
    """
    generator = common_generator(generator)
    drawn = torch.randint(2**62, (len(tables),), generator=generator, device="cpu").tolist()
    seeds = dict(zip(tables, drawn, strict=True))
    staged: dict[str, StagedClustering] = {}

    def stage(name: str) -> None:
        with naming(name):
            staged[name] = tables[name].stage(generator=torch.Generator().manual_seed(seeds[name]))

    order = sorted(filter(is_mine, tables), key=lambda name: -tables[name].num_embeddings)
    large = [name for name in order if tables[name].num_embeddings >= SMALL_IDS]
    small = order[len(large) :]
    for name in large:
        stage(name)
    parallel_for(lambda index: stage(small[index]), len(small))
    return {name: staged[name] for name in tables if name in staged}


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Say in an error which table it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{table} cannot be clustered: {error}") from error


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
