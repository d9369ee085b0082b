"""The tables that are fitted together: which of their ids, how many of them at a time, and under which priors."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cce.reclustering.refit.posterior import Prior, hand_over, learn_prior
from cce.reclustering.refit.rows import ALONE, blocks_of_rows, count_ids, pieces
from cce.reclustering.refit.shared_pass import SharedPass, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cce.distributed import Ranks
    from cce.embeddings import CCEEmbedding
    from cce.reclustering.refit.posterior import PackedFit, Parabolas
    from cce.reclustering.refit.refit import Refit
    from cce.reclustering.refit.rows import Fold

EM_STEPS, EM_IDS, EM_VALUES = 4, 1 << 12, 1 << 16  # ids of a sample, and values of their vectors, at most


class GroupFit:
    """What the ids of some features want, as many at a time as may be held."""

    def __init__(
        self,
        refit: Refit,
        tables: Mapping[str, CCEEmbedding],
        fold: Fold,
        generator: torch.Generator | None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.refit, self.fold, self.generator, self.ranks = refit, fold, generator, ranks
        names = list(refit.tables.features)
        self.columns = {feature: names.index(feature) for feature in tables}
        sizes = {self.columns[feature]: refit.tables.features[feature] for feature in tables}
        counts = count_ids(refit.rows, sizes, fold, ranks)
        self.ids = {}
        for feature, table in tables.items():
            ids = _ids_to_fit(table, counts[self.columns[feature]], refit.min_rows)
            if len(ids):
                self.ids[feature] = ids
        self.tables, self.priors = tables, dict[str, Prior]()
        self.blocks: np.ndarray | None = None  # of the rows, if the ids of one feature are fitted in several

    def fits(self) -> dict[str, Iterator[PackedFit]]:
        """Of each feature the fits, block by block. The first passes are done here, which say what the priors are."""
        if not self.ids:
            return {}
        if len(self.ids) > 1:
            return {feature: iter([fit]) for feature, fit in zip(self.ids, self._block(0, 1), strict=True)}
        ((feature, ids),) = self.ids.items()
        num_blocks = -(-len(ids) // self.refit.ids_at_a_time(feature))
        if num_blocks > 1:
            self.blocks = self._blocks_of_rows(feature, num_blocks)
        first = self._block(0, num_blocks)
        rest = (self._block(index, num_blocks)[0] for index in range(1, num_blocks))
        return {feature: chain(hand_over(first), rest)}

    def _block(self, index: int, num_blocks: int) -> list[PackedFit]:
        """The fits of every `num_blocks`-th id: a block has ids of all counts, so the first is a sample of all."""
        refit = self.refit
        targets = [self._target(feature, ids[index::num_blocks]) for feature, ids in self.ids.items()]
        shared = SharedPass(
            refit.model,
            refit.tables,
            refit.rows,
            targets,
            numbers=partial(self._numbers, index),
            loss=refit.loss,
            ranks=self.ranks,
        )
        return shared.fit(self._learn_priors, num_steps=refit.num_steps)

    def _blocks_of_rows(self, feature: str, num_blocks: int) -> np.ndarray | None:
        """The block that the id of each row is in, so that the pass of a block need not look for its rows."""
        ids, num_embeddings = self.ids[feature].numpy(), self.refit.tables.features[feature]
        kind = np.min_scalar_type(num_blocks)
        blocks = np.full(num_embeddings, np.iinfo(kind).max, kind)
        blocks[ids] = np.arange(len(ids)) % num_blocks
        return blocks_of_rows(self.refit.rows, self.columns[feature], blocks, self.fold, self.ranks)

    def _numbers(self, index: int, size: int) -> Iterator[np.ndarray]:
        """The numbers of the rows of a block, or of all rows of the fold, so many at a time."""
        if self.blocks is None:
            yield from pieces(len(self.refit.rows), self.fold, size, self.ranks)
            return
        numbers = np.flatnonzero(self.blocks == index)
        for start in range(0, len(numbers), size):
            yield numbers[start : start + size]

    def _target(self, feature: str, ids: Tensor) -> Target:
        table = self.tables[feature]
        with torch.no_grad():
            present = table.embed(ids.to(table.codebook.device)).float().cpu()
        block_dim, num_embeddings = self.refit.block_dim(feature), self.refit.tables.features[feature]
        return Target(self.columns[feature], ids, present, num_embeddings, block_dim)

    def _learn_priors(self, parabolas: Sequence[Parabolas]) -> list[Prior]:
        """From the first block, and from where those of the last refit were, or around the present vectors."""
        for feature, found in zip(self.ids, parabolas, strict=True):
            if feature not in self.priors:
                num_ids = min(EM_IDS, -(-EM_VALUES // found.points.shape[1]))
                some = found[torch.randperm(len(found.ids), generator=self.generator)[:num_ids].sort().values]
                start = self.refit.priors.get(feature) or Prior.around(some.points)
                self.priors[feature] = learn_prior(some, start, EM_STEPS)
        return [self.priors[feature] for feature in self.ids]


def _ids_to_fit(table: CCEEmbedding, counts: Tensor, min_rows: int) -> Tensor:
    """The ids with rows that occur often enough."""
    ids = torch.cat(list(table.row_map.ids())).cpu()
    return ids[counts[ids] >= min_rows]
