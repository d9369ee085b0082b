"""Pointers learned from the vectors that ids want, instead of those that they have.

A clustering of the table sees an id only through the rows that it shares with others. A refit asks its own rows: with
the network and all other tables fixed, which vector would be best for this id? Those vectors are what is coded. They
are fitted for a block of ids at a time and never held together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.checks import check_range, check_type
from cce.clustering import kmeans
from cce.embeddings import ClusteredEmbedding, ClusterStep, Quantized, StagedClustering
from cce.indexing import PointerStore
from cce.reclustering.refit.coding import CodebookSums
from cce.reclustering.refit.posterior import Block, Prior, learn_prior
from cce.reclustering.refit.rows import Fold, RowIndex, Rows, check_rows
from cce.reclustering.refit.slopes import cross_entropy, find_collection, in_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cce.embeddings import ClusterEvent
    from cce.schema import Batch

FIRST_ITERATIONS, ITERATIONS = 8, 4  # of k-means: from a sample, and from the rows of the last refit
EM_STEPS = 4
SAMPLED_SHARE = 0.25  # of all rows that the sample may have, if it is not all ids


class Refit:
    """Learns the pointers of the clustered tables of `model` from training rows.

    model: takes a `Batch` to logits `(batch)`, with one `EmbeddingCollection` inside.
    rows: the training rows by number, such as `PreparedData.open(path).rows("train")`.
    loss: logits and a batch to the loss of each row, twice differentiable in the logits (default: cross-entropy).
    min_rows: ids that occur in fewer rows get the vector of the prior's mean.
    num_steps: Gauss-Newton steps of each fit.
    points_per_row: ids that are sampled for each row of a codebook, to learn the prior and where centroids start.
    block_rows: rows that are looked at together, which bounds the memory.
    folds: parts of the rows. Tables take turns with them, so that no table is fitted on rows whose labels another one
        has learned; 1 uses all rows for every table.
    """

    def __init__(
        self,
        model: nn.Module,
        rows: Rows,
        *,
        loss: Callable[[Tensor, Batch], Tensor] = cross_entropy,
        min_rows: int = 3,
        num_steps: int = 1,
        points_per_row: int = 32,
        block_rows: int = 1 << 16,
        folds: int = 2,
    ) -> None:
        check_type("model", model, nn.Module, "a torch.nn.Module")
        check_rows(rows)
        check_range("min_rows", min_rows, 1, 2**31)
        check_range("num_steps", num_steps, 1, 2**31)
        check_range("points_per_row", points_per_row, 1, 2**31)
        check_range("block_rows", block_rows, 1, 2**31)
        check_range("folds", folds, 1, 2**16)
        self.model, self.rows, self.loss = model, rows, loss
        self.min_rows, self.num_steps = min_rows, num_steps
        self.points_per_row, self.block_rows, self.folds = points_per_row, block_rows, folds
        self.tables = find_collection(model)
        self.priors: dict[str, Prior] = {}  # of the last refit, by feature
        self._indices: dict[tuple[str, Fold | None], RowIndex] = {}
        for feature in self.features:
            self._table(feature)  # or say now that one cannot be refitted

    @property
    def features(self) -> list[str]:
        """The features whose pointers are learned, in order."""
        tables = self.tables.tables.items()
        return [name for name, table in tables if isinstance(table, ClusteredEmbedding) and table.can_cluster]

    def round(
        self,
        *,
        use_all_rows: bool = False,
        generator: torch.Generator | None = None,
        done: Callable[[str, ClusterEvent], object] | None = None,
    ) -> list[ClusterEvent]:
        """Refit every table in turn, each with what the others have become; say what happened to each.

        use_all_rows: fit every table on all rows rather than on its fold: the last round, after which neither the
            network nor a table should be trained on the same rows.
        done: called after each table.
        """
        events = []
        for turn, feature in enumerate(self.features):
            fold = None if use_all_rows or self.folds == 1 else Fold(turn % self.folds, self.folds)
            staged = self.stage(feature, fold=fold, generator=generator)
            staged.apply()
            events.append(staged.event)
            if done is not None:
                done(feature, staged.event)
        return events

    def stage(
        self, feature: str, *, fold: Fold | None = None, generator: torch.Generator | None = None
    ) -> StagedClustering:
        """Compute what the table of a feature becomes; it takes effect with `apply`."""
        table = self._table(feature)
        with in_evaluation(self.model):
            step = RefitStep(self, feature, table, self._index(feature, fold), generator)
            return step.stage(None)

    def state_dict(self) -> dict[str, Tensor]:
        """What the next round begins with: the priors."""
        return {f"{part}.{name}": value for name, prior in self.priors.items() for part, value in vars(prior).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        names = [key.removeprefix("mean.") for key in state if key.startswith("mean.")]
        parts = ("mean", "precision")  # copies: what lies elsewhere in memory is multiplied with other last bits
        self.priors = {name: Prior(*(state[f"{part}.{name}"].clone() for part in parts)) for name in names}

    def block(self, index: RowIndex, ids: Tensor) -> Block:
        """Some ids and their rows."""
        return Block(self.model, self.tables, self.rows, index, ids, loss=self.loss)

    def _table(self, feature: str) -> ClusteredEmbedding:
        if feature not in self.features:
            raise ValueError(f"feature must be one whose pointers are learned ({self.features}), got {feature!r}.")
        table = self.tables.tables[feature]
        assert isinstance(table, ClusteredEmbedding)
        if table.combine != "concat" or table.helper_start != "zero":
            raise ValueError(
                f"table of feature {feature!r} must have combine='concat' and helper_start='zero' to be refitted, "
                f"got {table.combine!r} and {table.helper_start!r}."
            )
        return table

    def _index(self, feature: str, fold: Fold | None) -> RowIndex:
        """Made at the first use."""
        if (feature, fold) not in self._indices:
            at = list(self.tables.features).index(feature)
            made = RowIndex.of(self.rows, at, self.tables.features[feature], fold=fold)
            self._indices[feature, fold] = made
        return self._indices[feature, fold]


class RefitStep(ClusterStep):
    """A cluster step whose vectors are what ids want."""

    def __init__(
        self,
        refit: Refit,
        feature: str,
        table: ClusteredEmbedding,
        index: RowIndex,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__(table, table.embed, generator)
        self.refit, self.feature, self.index = refit, feature, index

    def quantize(self, counts: Tensor | None) -> Quantized:
        """Codebooks and pointers of what ids want; `counts` are those of the rows."""
        del counts
        ids = self._sample()
        with self.timer("prior"):
            blocks = self.index.blocks(ids, self.refit.block_rows)
            known = [self.refit.block(self.index, some).parabolas() for some in blocks]
            prior = learn_prior(known, self._first_prior(ids), EM_STEPS)
        with self.timer("fit"):
            codebooks, inertias = self._cluster(torch.cat([some.minimum(prior).vectors for some in known]))
        with self.timer("assign"):
            pointers, codebooks = self._assign(prior, codebooks)
        self.refit.priors[self.feature] = prior
        return Quantized(ids, codebooks, pointers, inertias)

    def _sample(self) -> Tensor:
        """Ids that have rows enough, in order."""
        counts = self.index.counts[: self.table.assignments.num_learned]
        ids = torch.nonzero(counts >= self.refit.min_rows).squeeze(1)
        if not len(ids):
            raise ValueError(f"min_rows must leave ids to fit, got {self.refit.min_rows} and none with so many rows.")
        drawn = ids[torch.randperm(len(ids), generator=self.generator)]
        drawn = drawn[: self.refit.points_per_row * self.table.rows_after]
        if len(drawn) < len(ids):
            share = counts[drawn].cumsum(0) <= SAMPLED_SHARE * counts.sum()
            drawn = drawn[: max(int(share.sum()), self.table.rows_after)]
        return drawn.sort().values

    def _first_prior(self, ids: Tensor) -> Prior:
        """That of the last refit, or one around the present vectors."""
        if self.feature in self.refit.priors:
            return self.refit.priors[self.feature]
        return Prior.around(self.table.embed(ids.to(self.table.codebook.device)).float().cpu())

    def _cluster(self, vectors: Tensor) -> tuple[Tensor, tuple[float, ...]]:
        """Centroids of each column, from those of the last refit if there was one."""
        table = self.table
        pieces = vectors.chunk(table.num_columns, dim=1)
        starts: list[str | Tensor] = ["random"] * len(pieces)
        if self.feature in self.refit.priors and table.num_rows == table.rows_after:
            layout = table.codebook_layout()
            tables = table.codebook.detach().float().cpu().view(table.num_columns, -1, table.rows_after, layout.width)
            starts = list(tables[:, 0])
        found = [
            kmeans(
                piece.contiguous(),
                table.rows_after,
                init=start,
                max_iter=FIRST_ITERATIONS if isinstance(start, str) else ITERATIONS,
                generator=self.generator,
                backend=table.settings.backend,
            )
            for piece, start in zip(pieces, starts, strict=True)
        ]
        return torch.stack([each.centroids for each in found]), tuple(each.inertias[-1] for each in found)

    def _assign(self, prior: Prior, codebooks: Tensor) -> tuple[PointerStore, Tensor]:
        """The cheapest rows of all learned ids, and then the best rows for those who point to them."""
        num_learned = self.table.assignments.num_learned
        pointers = PointerStore(num_learned, self.table.num_columns, self.table.rows_after)
        is_fitted = self.index.counts[:num_learned] >= self.refit.min_rows
        sums = CodebookSums.zeros(codebooks)
        rare = sums.assign(prior.as_fit(int((~is_fitted).sum())), codebooks)  # all of them together
        for ids in self.index.blocks(torch.arange(num_learned), self.refit.block_rows):
            codes = rare.repeat(len(ids), 1)
            fitted = ids[is_fitted[ids]]
            if len(fitted):
                fit = self.refit.block(self.index, fitted).fit(prior, num_steps=self.refit.num_steps)
                codes[is_fitted[ids]] = sums.assign(fit, codebooks)
            pointers.write(int(ids[0]), codes)
        return pointers, sums.solve(codebooks)
