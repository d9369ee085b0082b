"""The per-id estimates of one table, coded: its codebooks, and the pointers of all of its ids that have rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.clustering import kmeans
from cce.embeddings import CCEEmbedding, Compact
from cce.indexing import PointerStore, blocks
from cce.reclustering.refit.coding import CodebookSums
from cce.reclustering.refit.posterior import hand_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cce.reclustering.refit.posterior import PackedFit, Prior

FIRST_ITERATIONS, ITERATIONS = 8, 4  # of k-means: from a sample, and from the rows of the last refit


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


class RefitStep:
    """What a table becomes.

    fits: of the ids that have rows enough, block by block; the first is a sample of them all, or has them all.
    prior: what all others become.
    points_per_row: ids that are sampled for each row of a codebook.
    is_first: whether centroids start anywhere, rather than at the rows of the table as it is.
    """

    def __init__(
        self,
        table: CCEEmbedding,
        fits: Iterator[PackedFit],
        prior: Prior,
        *,
        points_per_row: int,
        is_first: bool,
        generator: torch.Generator | None,
    ) -> None:
        self.table, self.generator = table, generator
        self.fits, self.prior, self.points_per_row, self.is_first = fits, prior, points_per_row, is_first

    def stage(self) -> StagedRefit:
        """Codebooks and pointers; the table stays as it is."""
        start, first = perf_counter(), next(self.fits)
        drawn = torch.randperm(len(first.ids), generator=self.generator)
        drawn = drawn[: self.points_per_row * self.table.num_rows].sort().values
        fits, codebooks = chain(hand_over([first]), self.fits), self._cluster(first.vectors[drawn])
        del first  # curvatures are held one block at a time
        num_ids, store, codebooks = self._assign(fits, codebooks)
        event = RefitEvent(num_ids, _churn(self.table.pointers.store, store), perf_counter() - start)
        return StagedRefit(event, lambda: self.table.become(Compact(codebooks, store, 0.0)))

    def _cluster(self, vectors: Tensor) -> Tensor:
        """Centroids of each column, from those of the last refit if there was one."""
        table = self.table
        pieces = vectors.chunk(table.num_columns, dim=1)
        starts: list[str | Tensor] = ["random"] * len(pieces)
        if not self.is_first:
            starts = list(table.codebook.detach().float().cpu().view(table.num_columns, table.num_rows, -1))
        found = [
            kmeans(
                piece.contiguous(),
                table.num_rows,
                init=start,
                max_iter=FIRST_ITERATIONS if isinstance(start, str) else ITERATIONS,
                generator=self.generator,
            )
            for piece, start in zip(pieces, starts, strict=True)
        ]
        return torch.stack([each.centroids for each in found])

    def _assign(self, fits: Iterator[PackedFit], codebooks: Tensor) -> tuple[int, PointerStore, Tensor]:
        """The cheapest rows of all ids, and then the best rows for those who point to them."""
        num_rows, num_columns = self.table.row_map.num_rows, self.table.num_columns
        sums, codes = CodebookSums.zeros(codebooks), torch.full((num_rows, num_columns), -1, dtype=torch.int32)
        for fit in fits:
            for some in fit.split():
                codes[self.table.row_map(some.ids) - 1] = sums.assign(some, codebooks).int()
            del fit, some  # before the next block is fitted
        rare = codes[:, 0] < 0
        if rare.any():
            codes[rare] = sums.assign(self.prior.as_fit(int(rare.sum())), codebooks).int()  # all of them together
        store = PointerStore(num_rows, num_columns, self.table.num_rows)
        for rows in blocks(num_rows):
            store.write(int(rows[0]), codes[rows].long())
        return num_rows - int(rare.sum()), store, sums.solve(codebooks)


def _churn(old: PointerStore, new: PointerStore) -> float:
    """The share of pointers that are others."""
    changed = sum(int((before != after).sum()) for before, after in zip(old.blocks(), new.blocks(), strict=True))
    return changed / max(1, new.num_ids * new.num_columns)
