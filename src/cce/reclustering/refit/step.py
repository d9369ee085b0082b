"""What the ids of one table want, coded: its codebooks, and the pointers of all of its ids."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.clustering import kmeans
from cce.embeddings import CCEEmbedding, Quantized, SharedTailStep
from cce.indexing import PointerStore, blocks
from cce.reclustering.refit.coding import CodebookSums
from cce.reclustering.refit.posterior import hand_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cce.reclustering.refit.posterior import PackedFit, Prior

FIRST_ITERATIONS, ITERATIONS = 8, 4  # of k-means: from a sample, and from the rows of the last refit


class RefitStep(SharedTailStep):
    """A cluster step whose vectors are what ids want.

    fits: of the ids that have rows enough, block by block; the first is a sample of them all, or has them all.
    prior: what is wanted by all others.
        If ids without pointers share a vector, the first of them may be among the ids, and stands for all.
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
        super().__init__(table, table.embed, generator)
        self.fits, self.prior, self.points_per_row, self.is_first = fits, prior, points_per_row, is_first

    def quantize(self, counts: Tensor | None) -> Quantized:
        """Codebooks and pointers of what ids want; `counts` are those of the rows."""
        del counts
        first = next(self.fits)
        with self.timer("fit"):
            num_own = int((first.ids < self.table.assignments.num_learned).sum())
            drawn = torch.randperm(num_own, generator=self.generator)
            drawn = drawn[: self.points_per_row * self.table.num_rows].sort().values
            sample, fits = first.ids[drawn], chain(hand_over([first]), self.fits)
            codebooks, inertias = self._cluster(first.vectors[drawn])
            del first  # curvatures are held one block at a time
        with self.timer("assign"):
            pointers, codebooks = self._assign(fits, codebooks)
        return Quantized(sample, codebooks, pointers, inertias)

    def _cluster(self, vectors: Tensor) -> tuple[Tensor, tuple[float, ...]]:
        """Centroids of each column, from those of the last refit if there was one."""
        table = self.table
        pieces = vectors.chunk(table.num_columns, dim=1)
        starts: list[str | Tensor] = ["random"] * len(pieces)
        if not self.is_first:
            starts = list(table.tables[:, 0].float().cpu())
        found = [
            kmeans(
                piece.contiguous(),
                table.num_rows,
                init=start,
                max_iter=FIRST_ITERATIONS if isinstance(start, str) else ITERATIONS,
                generator=self.generator,
                backend=table.settings.backend,
            )
            for piece, start in zip(pieces, starts, strict=True)
        ]
        return torch.stack([each.centroids for each in found]), tuple(each.inertias[-1] for each in found)

    def _assign(self, fits: Iterator[PackedFit], codebooks: Tensor) -> tuple[PointerStore, Tensor]:
        """The cheapest rows of all learned ids, and then the best rows for those who point to them."""
        assignments, sums = self.table.assignments, CodebookSums.zeros(codebooks)
        num_learned, num_columns = assignments.num_learned, self.table.num_columns
        codes = torch.full((num_learned + assignments.share_tail, num_columns), -1, dtype=torch.int32)
        for fit in fits:
            for some in fit.split():
                codes[some.ids] = sums.assign(some, codebooks).int()
            del fit, some  # before the next block is fitted
        rare = codes[:, 0] < 0
        if assignments.share_tail and not rare[-1]:
            codes[rare] = codes[-1].clone()  # an id that was hardly seen is like those that were seen once or twice
        elif rare.any():
            codes[rare] = sums.assign(self.prior.as_fit(int(rare.sum())), codebooks).int()  # all of them together
        pointers = PointerStore(num_learned, num_columns, self.table.num_rows)
        for ids in blocks(num_learned):
            pointers.write(int(ids[0]), codes[ids].long())
        solved = sums.solve(codebooks)
        self.tail = solved[torch.arange(num_columns), codes[-1].long()].reshape(1, -1)
        return pointers, solved

    def tail_vector(self) -> Tensor:
        """What the ids without pointers were given."""
        return self.tail
