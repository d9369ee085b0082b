"""The estimates of one table, coded: its codebooks, and the pointers of all of its ids that have rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.clustering import kmeans
from cce.embeddings import CCEEmbedding, Compact
from cce.indexing import PointerStore, blocks
from cce.reclustering.refit.coding import CodebookSums

if TYPE_CHECKING:
    from cce.reclustering.refit.estimates import Estimates

FIRST_ITERATIONS, ITERATIONS = 8, 4  # of k-means: from a sample, and from the rows of the last refit
POINTS_PER_ROW = 32  # ids that are sampled for each row of a codebook, to say where centroids start


@dataclass(frozen=True)
class RefitEvent:
    """What a refit did to one table."""

    num_ids: int  # whose pointers were fitted to their own rows
    churn: float  # share of pointers that changed
    seconds: float


@dataclass(frozen=True)
class StagedRefit:
    """A refit that is computed and has not taken effect: the table is as it was until `apply`."""

    event: RefitEvent
    apply: Callable[[], None]


def stage_table(
    table: CCEEmbedding, fits: Iterator[Estimates], *, is_first: bool, generator: torch.Generator | None
) -> StagedRefit:
    """Code the estimates of all ids of a table; it stays as it is until `apply`.

    fits: the estimates, block by block; the first is a sample of all ids, or has them all.
    is_first: whether centroids start anywhere, rather than at the rows of the table as it is.
    """
    start = perf_counter()
    first = next(fits)
    drawn = torch.randperm(len(first.ids), generator=generator)
    drawn = drawn[first.num_rows[drawn] > 0][: POINTS_PER_ROW * table.num_rows].sort().values
    codebooks = _cluster(table, first.vectors[drawn], is_first=is_first, generator=generator)
    pointers = torch.zeros(table.row_map.num_rows, table.num_columns, dtype=torch.int32)
    sums, num_ids = CodebookSums.zeros(codebooks), 0
    fit: Estimates | None = first
    del first  # Hessians are held one block at a time
    while fit is not None:
        num_ids += int((fit.num_rows > 0).sum())
        for some in fit.split():
            pointers[table.row_map(some.ids) - 1] = sums.assign(some, codebooks).int()
        del fit, some
        fit = next(fits, None)
    store = PointerStore(table.row_map.num_rows, table.num_columns, table.num_rows)
    for rows in blocks(table.row_map.num_rows):
        store.write(int(rows[0]), pointers[rows].long())
    compact = Compact(sums.solve(codebooks), store, 0.0)
    event = RefitEvent(num_ids, _churn(table.pointers.store, store), perf_counter() - start)
    return StagedRefit(event, lambda: table.become(compact))


def _cluster(table: CCEEmbedding, vectors: Tensor, *, is_first: bool, generator: torch.Generator | None) -> Tensor:
    """Centroids of each column, from those of the last refit if there was one."""
    old = table.codebook.detach().float().cpu().view(table.num_columns, table.num_rows, -1)
    found = [
        kmeans(
            piece.contiguous(),
            table.num_rows,
            init="random" if is_first else old[column],
            max_iter=FIRST_ITERATIONS if is_first else ITERATIONS,
            generator=generator,
        )
        for column, piece in enumerate(vectors.chunk(table.num_columns, dim=1))
    ]
    return torch.stack([each.centroids for each in found])


def _churn(old: PointerStore, new: PointerStore) -> float:
    """The share of pointers that are others."""
    changed = sum(int((before != after).sum()) for before, after in zip(old.blocks(), new.blocks(), strict=True))
    return changed / max(1, new.num_ids * new.num_columns)
