"""Many tables clustered as one pool of work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.compiled import parallel_for
from cce.indexing import check_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cce.embeddings.clusterable import Clusterable, ClusterEvent

SMALL_IDS = 1 << 18  # tables of fewer ids are clustered side by side, each on one core


def cluster_all(
    tables: Sequence[Clusterable],
    generator: torch.Generator | None = None,
    *,
    places: Collection[int] | None = None,
    done: Callable[[int, ClusterEvent], None] | None = None,
) -> list[ClusterEvent]:
    """Cluster every table, each with random numbers of its own; `done(place, event)` is called
    after each, on the thread that clustered it.

    `places` are those to cluster if others have the rest: a table's random numbers are the same either way.

    Large tables come one after another, as each of them uses all cores; small ones run side by side. The result does
    not depend on that.
    """
    check_generator(generator)
    seeds = torch.randint(2**62, (len(tables),), generator=generator, device="cpu").tolist()
    events: dict[int, ClusterEvent] = {}

    def cluster(place: int) -> None:
        events[place] = tables[place].cluster(generator=torch.Generator().manual_seed(seeds[place]))
        if done is not None:
            done(place, events[place])

    mine = range(len(tables)) if places is None else places
    order = sorted(mine, key=lambda place: -tables[place].num_embeddings)
    large = [place for place in order if tables[place].num_embeddings >= SMALL_IDS]
    small = order[len(large) :]
    for place in large:
        cluster(place)
    parallel_for(lambda index: cluster(small[index]), len(small))
    return [events[place] for place in sorted(mine)]
