"""Many tables clustered as one pool of work, all of them or none."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from cce.compiled import parallel_for
from cce.indexing import check_index_state, common_generator
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cce.embeddings.clusterable import Clusterable, ClusterEvent, StagedClustering

SMALL_IDS = 1 << 18  # tables of fewer ids are clustered side by side, each on one core


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
    done: Callable[[], object] = lambda: None,
) -> dict[str, StagedClustering]:
    """Compute the clusterings of all tables, or of some if others have the rest; all tables stay as they are.

    A table's random numbers do not depend on who clusters it. `done` is called after each table, on the thread that
    clustered it. Large tables come one after another, as each of them uses all cores; small ones run side by side.
    The result does not depend on that.
    """
    generator = common_generator(generator)
    drawn = torch.randint(2**62, (len(tables),), generator=generator, device="cpu").tolist()
    seeds = dict(zip(tables, drawn, strict=True))
    staged: dict[str, StagedClustering] = {}

    def stage(name: str) -> None:
        with naming(name):
            staged[name] = tables[name].stage(generator=torch.Generator().manual_seed(seeds[name]))
        done()

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
