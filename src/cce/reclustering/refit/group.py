"""The tables that are fitted together: which of their ids, how many of them at a time, and under which priors."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cce.reclustering.refit.hooks import Target
from cce.reclustering.refit.posterior import Prior, hand_over, learn_prior
from cce.reclustering.refit.rows import ALONE, Selection, blocks_of_rows, count_ids
from cce.reclustering.refit.shared_pass import SharedPass

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
        self.refit, self.generator, self.selection = refit, generator, Selection(fold, ranks)
        sizes = {name: table.num_embeddings for name, table in tables.items()}
        counts = count_ids(refit.source, refit.hooks, sizes, self.selection)
        fitted = {name: _ids_to_fit(table, counts[name], refit.min_rows) for name, table in tables.items()}
        self.ids = {name: ids for name, ids in fitted.items() if len(ids)}
        self.tables, self.priors = tables, dict[str, Prior]()

    def fits(self) -> dict[str, Iterator[PackedFit]]:
        """Of each feature the fits, block by block. The first passes are done here, which say what the priors are."""
        if not self.ids:
            return {}
        if len(self.ids) > 1:
            return {feature: iter([fit]) for feature, fit in zip(self.ids, self._block(0, 1), strict=True)}
        ((feature, ids),) = self.ids.items()
        num_blocks = -(-len(ids) // self.refit.ids_at_a_time(feature))
        if num_blocks > 1:
            self.selection = replace(self.selection, blocks=self._blocks_of_rows(feature, num_blocks))
        first = self._block(0, num_blocks)
        rest = (self._block(index, num_blocks)[0] for index in range(1, num_blocks))
        return {feature: chain(hand_over(first), rest)}

    def _block(self, index: int, num_blocks: int) -> list[PackedFit]:
        """The fits of every `num_blocks`-th id: a block has ids of all counts, so the first is a sample of all."""
        refit = self.refit
        targets = [self._target(feature, ids[index::num_blocks]) for feature, ids in self.ids.items()]
        shared = SharedPass(refit.source, refit.hooks, targets, replace(self.selection, block=index))
        return shared.fit(self._learn_priors, num_steps=refit.num_steps)

    def _blocks_of_rows(self, feature: str, num_blocks: int) -> np.ndarray | None:
        """The block that the id of each row is in, so that the pass of a block need not look for its rows."""
        ids, num_embeddings = self.ids[feature].numpy(), self.tables[feature].num_embeddings
        kind = np.min_scalar_type(num_blocks)
        blocks = np.full(num_embeddings, np.iinfo(kind).max, kind)
        blocks[ids] = np.arange(len(ids)) % num_blocks
        return blocks_of_rows(self.refit.source, self.refit.hooks, feature, blocks, self.selection)

    def _target(self, feature: str, ids: Tensor) -> Target:
        table = self.tables[feature]
        with torch.no_grad():
            present = table.embed(ids.to(table.codebook.device)).float().cpu()
        return Target(feature, ids, present, table.num_embeddings, self.refit.block_dim(feature))

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
