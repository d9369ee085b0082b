"""Pointers and codebooks fitted to each id's own training rows.

A clustering of the table sees an id only through the vectors that training left. A refit asks the id's rows: with the
network and all other tables fixed, which vector would be best for it? Those estimates are coded. They are computed for
a bounded number of ids at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_range, check_type
from cce.distributed import Ranks, current_ranks
from cce.indexing import check_index_state, common_generator
from cce.reclustering.refit.blocks import packed_size
from cce.reclustering.refit.estimates import SOLVED, Estimates, Prior, Quadratics, learn_prior
from cce.reclustering.refit.hooks import LookupHooks, Target, in_evaluation
from cce.reclustering.refit.passes import SharedPass
from cce.reclustering.refit.sources import ALL_ROWS, ALONE, FetchedRows, Fold, Rows, Selection, Source, cross_entropy
from cce.reclustering.refit.step import RefitEvent, StagedRefit, stage_table

if TYPE_CHECKING:
    from cce.embeddings import CCEEmbedding
    from cce.schema import Batch

WIDEST_BLOCK = 16  # dimensions, or one column
HELD_VECTORS = 4  # of an id: present, gradient, new and shift
SOLVED_COPIES = 3  # of the Hessians that are written out to be solved
HELD_VALUES = 6  # of an id: its number and sums of losses
FULL_NBYTES = 16  # of a value of a full table under Adam: itself, gradient and two moments
SMALLEST_NBYTES, LARGEST_NBYTES = 1 << 24, 1 << 30
EM_STEPS, EM_IDS, EM_VALUES = 4, 1 << 12, 1 << 16  # ids of a sample, and values of their vectors, at most
EM_ROWS = 3  # that an id of the sample has at least
FEW_SHORTENED = 0.005  # of the ids: so few say that steps are not too long, and line searches are left out
GROUP_SIZE = 3  # tables that are fitted in one pass, each with the others as they are


class Refit:
    """Fits the finalized `cce` tables of `model` to training rows, in rounds.

    model: takes a `Batch` to logits `(batch)`, with one `EmbeddingCollection` inside; any model, if `rows` is a
        `Source`.
    rows: the training rows by number, such as `PreparedData.open(path).rows("train")`, or a `Source`.
    loss: logits and a batch to the loss of each row, twice differentiable in the logits (default: cross-entropy).
    folds: parts of the rows. Groups of tables take turns with them, so that none is fitted on rows whose labels
        another one has just learned; 1 uses all rows for every table.
    spare_fold: leave the last fold to the network, which is yours to train between rounds (`network_fold`).
    max_nbytes: of Hessians and vectors that are held at a time; more ids take more passes, each over the rows of some
        of them. By default half of what full tables would hold under Adam, but 16 MB to 1 GB. An id of 16 dimensions
        has 824 bytes; Hessians of more dimensions are held in diagonal blocks.
    """

    def __init__(
        self,
        model: nn.Module,
        rows: Rows | Source,
        *,
        loss: Callable[[Tensor, Batch], Tensor] = cross_entropy,
        folds: int = 2,
        spare_fold: bool = False,
        max_nbytes: int | None = None,
    ) -> None:
        check_type("model", model, nn.Module, "a torch.nn.Module")
        if max_nbytes is not None:
            check_range("max_nbytes", max_nbytes, 1, 2**63)
        check_flag("spare_fold", spare_fold)
        check_range("folds", folds, 1 + spare_fold, 2**16)
        self.model = model
        self.source = rows if isinstance(rows, Source) else FetchedRows(model, rows, loss)
        self.folds, self.spare_fold = folds, spare_fold
        self.tables = self.source.tables
        self.hooks = LookupHooks(model, self.tables)
        self.max_nbytes = _default_nbytes(self.tables.values()) if max_nbytes is None else max_nbytes
        self.priors: dict[str, Prior] = {}  # of the last refit, by feature
        self.shortened: dict[str, float] = {}  # share of ids whose step was too long, by group
        self._row_blocks: dict[str, np.ndarray | None] = {}  # the block of each row's id, by feature

    @property
    def features(self) -> list[str]:
        """The names of the tables that are refitted, in order."""
        return [name for name, table in self.tables.items() if table.is_final]

    @property
    def groups(self) -> list[list[str]]:
        """The features in groups that are fitted in one pass: up to three, if `max_nbytes` allows.

        No fold goes without a group if there are features enough: two features have a fold each.
        """
        groups: list[list[str]] = []
        size, left = min(GROUP_SIZE, -(-len(self.features) // self._num_folds)), 0
        for feature in self.features:
            nbytes = self.tables[feature].row_map.num_rows * self.nbytes_per_id(feature)
            if not groups or len(groups[-1]) == size or nbytes > left:
                groups.append([])
                left = self.max_nbytes
            groups[-1].append(feature)
            left -= nbytes
        return groups

    @property
    def network_fold(self) -> Fold | None:
        """The rows that no table is fitted on but in the last round: those to train the network on."""
        return Fold(self.folds - 1, self.folds) if self.spare_fold else None

    def block_dim(self, feature: str) -> int:
        """Dimensions whose Hessians with each other are held: all if they are few, or whole columns of the table."""
        num_columns, width = self.tables[feature].num_columns, self.tables[feature].width
        shares = [share for share in range(1, num_columns + 1) if num_columns % share == 0]
        return max([width, *(share * width for share in shares if share * width <= WIDEST_BLOCK)])

    def nbytes_per_id(self, feature: str) -> int:
        """Bytes that each id of a feature takes while it is fitted."""
        dim = self.tables[feature].embedding_dim
        return 4 * (packed_size(dim, self.block_dim(feature)) + HELD_VECTORS * dim + HELD_VALUES)

    def num_blocks(self, feature: str) -> int:
        """In how many blocks the ids of a feature are fitted."""
        per_block = max(1, self.max_nbytes // self.nbytes_per_id(feature))
        return max(1, -(-self.tables[feature].row_map.num_rows // per_block))

    def nbytes(self, feature: str) -> int:
        """Bytes that a refit of a table holds besides the model, at most; computed from sizes, not measured.

        What is held for each id that is fitted at a time, and while some of them are solved; the index of each id; for
        each row the block of its id, if there are several; new pointers, packed and not yet packed, and codebooks.
        """
        table, num_blocks = self.tables[feature], self.num_blocks(feature)
        num_ids = table.row_map.num_rows
        fitted = -(-num_ids // num_blocks)
        solved = min(SOLVED, fitted) * SOLVED_COPIES * 4 * table.embedding_dim * self.block_dim(feature)
        blocks = len(self.source) * np.min_scalar_type(num_blocks).itemsize if num_blocks > 1 else 0
        pointers = 4 * num_ids * table.num_columns + table.nbytes
        return fitted * self.nbytes_per_id(feature) + solved + 4 * table.num_embeddings + blocks + pointers

    @property
    def peak_nbytes(self) -> dict[str, int]:
        """What the tables hold that are fitted together, where that is most: groups take turns."""
        groups = [{feature: self.nbytes(feature) for feature in group} for group in self.groups]
        return max(groups, key=lambda held: sum(held.values()), default={})

    def round(
        self,
        *,
        use_all_rows: bool = False,
        generator: torch.Generator | None = None,
        done: Callable[[str, RefitEvent], object] | None = None,
        ranks: Ranks | None = None,
    ) -> dict[str, RefitEvent]:
        """Refit every table, group by group, each with what the others have become; say what happened to each.

        use_all_rows: fit every table on all rows rather than on its fold: the last round, after which neither the
            network nor a table should be trained on the same rows.
        done: called after each table.
        ranks: processes that all call this, with equal models, rows and generators: each passes over a share of the
            rows, and all get the same tables. By default those of torch's process group, if there is one.
        """
        events, generator = {}, common_generator(generator)
        ranks = ranks or current_ranks()
        for turn, group in enumerate(self.groups):
            fold = ALL_ROWS if use_all_rows else Fold(turn % self._num_folds, self.folds)
            for feature, staged in self.stage(*group, fold=fold, generator=generator, ranks=ranks).items():
                staged.apply()
                events[feature] = staged.event
                if done is not None:
                    done(feature, staged.event)
        if ranks.world_size > 1:
            check_index_state({f"table of feature {feature!r}": self.tables[feature] for feature in events})
        return events

    def stage(
        self,
        *features: str,
        fold: Fold = ALL_ROWS,
        generator: torch.Generator | None = None,
        ranks: Ranks = ALONE,
    ) -> dict[str, StagedRefit]:
        """Compute what the tables of features become, from the same passes; each takes effect with its `apply`."""
        for feature in features:
            if feature not in self.features:
                raise ValueError(f"feature must be one whose table is final ({self.features}), got {feature!r}.")
        learn, staged = _LearnPriors(self.priors, features, generator), {}
        with in_evaluation(self.model):
            for feature, fits in self._fits(features, Selection(fold, ranks), learn).items():
                is_first = feature not in self.priors
                staged[feature] = stage_table(self.tables[feature], fits, is_first=is_first, generator=generator)
        self.priors |= learn.found
        return staged

    def _fits(
        self, features: Sequence[str], selection: Selection, learn: _LearnPriors
    ) -> dict[str, Iterator[Estimates]]:
        """Of each feature the estimates, block by block; several features have one block each."""
        if len(features) > 1:
            return {
                name: iter([fit]) for name, fit in zip(features, self._block(features, selection, learn), strict=True)
            }
        (feature,) = features
        num_blocks = self.num_blocks(feature)
        if num_blocks > 1:
            if feature not in self._row_blocks:
                self._row_blocks[feature] = self._blocks_of_rows(feature, num_blocks, selection.ranks)
            selection = replace(selection, blocks=self._row_blocks[feature])
        blocks = (replace(selection, block=index) for index in range(num_blocks))
        return {feature: (self._block(features, each, learn, num_blocks)[0] for each in blocks)}

    def _block(
        self, features: Sequence[str], selection: Selection, learn: _LearnPriors, num_blocks: int = 1
    ) -> list[Estimates]:
        """The estimates of every `num_blocks`-th id: a block has ids of all counts, so the first is a sample of all."""
        targets = [self._target(feature, self._ids(feature)[selection.block :: num_blocks]) for feature in features]
        shared, group = SharedPass(self.source, self.hooks, targets, selection), "+".join(features)
        needs_search = self.shortened.get(group, 1.0) > FEW_SHORTENED
        estimates = shared.fit(learn, line_search=needs_search)
        if needs_search:
            self.shortened[group] = shared.num_shortened / max(1, sum(len(target.ids) for target in targets))
        return estimates

    def _ids(self, feature: str) -> Tensor:
        return torch.cat(list(self.tables[feature].row_map.ids())).cpu()

    def _target(self, feature: str, ids: Tensor) -> Target:
        table = self.tables[feature]
        with torch.no_grad():
            present = table.embed(ids.to(table.codebook.device)).float().cpu()
        return Target(feature, ids, present, table.num_embeddings, self.block_dim(feature))

    def _blocks_of_rows(self, feature: str, num_blocks: int, ranks: Ranks) -> np.ndarray | None:
        """The block that the id of each row is in, so that the pass of a block need not look for its rows.

        None if a row has several ids of the table, which may be of several blocks.
        """
        dtype, ids = np.min_scalar_type(num_blocks), self._ids(feature).numpy()
        blocks = np.full(self.tables[feature].num_embeddings, np.iinfo(dtype).max, dtype)
        blocks[ids] = np.arange(len(ids)) % num_blocks
        found, selection = [], Selection(ranks=ranks)
        with self.hooks.attached():
            for piece in self.source.pieces(selection):
                recorded = self.hooks.record(partial(self.source.forward, piece))
                self.source.kept(piece, recorded, selection)
                if not recorded.is_single(feature):
                    return None
                own = np.full(len(recorded.outputs), np.iinfo(dtype).max, dtype)
                rows, read = recorded.pairs(feature)
                own[rows.numpy()] = blocks[read.numpy()]
                found.append(own)
        return np.concatenate(found)

    def state_dict(self) -> dict[str, Tensor]:
        """What the next round begins with: the priors, and whether steps were too long."""
        priors = {f"{part}.{name}": value for name, prior in self.priors.items() for part, value in vars(prior).items()}
        return priors | {f"shortened.{group}": torch.tensor(share) for group, share in self.shortened.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        names = [key.removeprefix("mean.") for key in state if key.startswith("mean.")]
        parts = ("mean", "precision")  # copies: what lies elsewhere in memory is multiplied with other last bits
        shares = {key.removeprefix("shortened."): share for key, share in state.items() if key.startswith("shortened.")}
        self.shortened = {group: float(share) for group, share in shares.items()}
        self.priors = {name: Prior(*(state[f"{part}.{name}"].clone() for part in parts)) for name in names}

    @property
    def _num_folds(self) -> int:
        """Folds that tables are fitted on."""
        return self.folds - self.spare_fold


class _LearnPriors:
    """Priors of some features, learned from their first blocks, starting at those of the last refit."""

    def __init__(self, before: Mapping[str, Prior], features: Sequence[str], generator: torch.Generator | None) -> None:
        self.before, self.features, self.generator = before, features, generator
        self.found: dict[str, Prior] = {}

    def __call__(self, quadratics: Sequence[Quadratics]) -> list[Prior]:
        for feature, each in zip(self.features, quadratics, strict=True):
            if feature not in self.found:
                num_ids = min(EM_IDS, -(-EM_VALUES // each.points.shape[1]))
                drawn = torch.randperm(len(each.ids), generator=self.generator)
                often = each.num_rows[drawn] >= min(EM_ROWS, float(each.num_rows.max()))
                some = each[drawn[often][:num_ids].sort().values]
                start = self.before.get(feature) or Prior.around(some.points)
                self.found[feature] = learn_prior(some, start, EM_STEPS)
        return [self.found[feature] for feature in self.features]


def _default_nbytes(tables: Iterable[CCEEmbedding]) -> int:
    values = sum(table.num_embeddings * table.embedding_dim for table in tables)
    return min(max(values * FULL_NBYTES // 2, SMALLEST_NBYTES), LARGEST_NBYTES)
