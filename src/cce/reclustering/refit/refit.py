"""Pointers learned from the vectors that ids want, instead of those that they have.

A clustering of the table sees an id only through the rows that it shares with others. A refit asks its own rows: with
the network and all other tables fixed, which vector would be best for this id? Those vectors are what is coded. They
are fitted for a bounded number of ids at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_range, check_type
from cce.distributed import current_ranks
from cce.indexing import check_index_state, common_generator
from cce.reclustering.refit.group import GroupFit
from cce.reclustering.refit.hooks import LookupHooks, in_evaluation
from cce.reclustering.refit.packing import packed_size
from cce.reclustering.refit.posterior import SOLVED, Prior
from cce.reclustering.refit.rows import ALL_ROWS, ALONE, FetchedRows, Fold, Rows, Source, cross_entropy
from cce.reclustering.refit.step import RefitEvent, RefitStep, StagedRefit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cce.distributed import Ranks
    from cce.embeddings import CCEEmbedding
    from cce.schema import Batch

WIDEST_BLOCK = 16  # dimensions, or one column
HELD_VECTORS = 4  # of an id: present, gradient, new and shift
SOLVED_COPIES = 3  # of the curvatures that are written out to be solved
HELD_VALUES = 6  # of an id: its name and sums of losses
ID_NBYTES = 12  # a count and an index
FULL_NBYTES = 16  # of a value of a full table under Adam: itself, gradient and two moments
SMALLEST_NBYTES, LARGEST_NBYTES = 1 << 20, 1 << 30


class Refit:
    """Learns the pointers of the tables of `model` whose method is "cce" from training rows.

    model: takes a `Batch` to logits `(batch)`, with one `EmbeddingCollection` inside.
    rows: the training rows by number, such as `PreparedData.open(path).rows("train")`.
    loss: logits and a batch to the loss of each row, twice differentiable in the logits (default: cross-entropy).
    min_rows: ids that occur in fewer rows get the vector of the prior's mean.
    num_steps: Gauss-Newton steps of each fit, a pass over the rows each.
    points_per_row: ids that are sampled for each row of a codebook, to say where centroids start.
    group_size: tables that are fitted in one pass, each with the others as they are. The groups take turns.
    folds: parts of the rows. Groups take turns with them, so that none is fitted on rows whose labels another one
        has just learned; 1 uses all rows for every table.
    spare_fold: leave the last fold to the network, which is yours to train between rounds (`network_fold`).
    max_nbytes: of curvatures and vectors that are held at a time; more ids take more passes, each over the rows of
        some of them. Unless told, half of what full tables would hold under Adam, but 1 MB to 1 GB. An id of 16
        dimensions has 824 bytes; curvatures of more dimensions are held in diagonal blocks.
    """

    def __init__(
        self,
        model: nn.Module,
        rows: Rows | Source,
        *,
        loss: Callable[[Tensor, Batch], Tensor] = cross_entropy,
        min_rows: int = 3,
        num_steps: int = 1,
        points_per_row: int = 32,
        group_size: int = 3,
        folds: int = 2,
        spare_fold: bool = False,
        max_nbytes: int | None = None,
    ) -> None:
        check_type("model", model, nn.Module, "a torch.nn.Module")
        check_range("min_rows", min_rows, 1, 2**31)
        check_range("num_steps", num_steps, 1, 2**31)
        check_range("points_per_row", points_per_row, 1, 2**31)
        check_range("group_size", group_size, 1, 2**31)
        if max_nbytes is not None:
            check_range("max_nbytes", max_nbytes, 1, 2**63)
        check_flag("spare_fold", spare_fold)
        check_range("folds", folds, 1 + spare_fold, 2**16)
        self.model = model
        self.source = rows if isinstance(rows, Source) else FetchedRows(model, rows, loss)
        self.min_rows, self.num_steps, self.points_per_row = min_rows, num_steps, points_per_row
        self.group_size, self.folds, self.spare_fold = group_size, folds, spare_fold
        self.tables = self.source.tables
        self.hooks = LookupHooks(model, self.tables)
        self.max_nbytes = _usual_nbytes(self.tables.values()) if max_nbytes is None else max_nbytes
        self.priors: dict[str, Prior] = {}  # of the last refit, by feature

    @property
    def features(self) -> list[str]:
        """The features whose pointers are learned, in order."""
        return [name for name, table in self.tables.items() if table.is_final]

    @property
    def groups(self) -> list[list[str]]:
        """The features in groups that are fitted in one pass: as many as `group_size` and `max_nbytes` allow.

        No fold goes without a group if there are features enough: two features have a fold each.
        """
        groups: list[list[str]] = []
        size, room = min(self.group_size, -(-len(self.features) // self._num_folds)), 0
        for feature in self.features:
            nbytes = self._table(feature).row_map.num_rows * self.nbytes_per_id(feature)
            if not groups or len(groups[-1]) == size or nbytes > room:
                groups.append([])
                room = self.max_nbytes
            groups[-1].append(feature)
            room -= nbytes
        return groups

    @property
    def network_fold(self) -> Fold | None:
        """The rows that no table is fitted on but in the last round: those to train the network on."""
        return Fold(self.folds - 1, self.folds) if self.spare_fold else None

    def block_dim(self, feature: str) -> int:
        """Dimensions whose curvatures with each other are held: all if they are few, or whole columns of the table."""
        num_columns, width = self._table(feature).num_columns, self._table(feature).width
        shares = [share for share in range(1, num_columns + 1) if num_columns % share == 0]
        return max([width, *(share * width for share in shares if share * width <= WIDEST_BLOCK)])

    def nbytes_per_id(self, feature: str) -> int:
        """Bytes that each id of a feature takes while it is fitted."""
        dim = self._table(feature).embedding_dim
        return 4 * (packed_size(dim, self.block_dim(feature)) + HELD_VECTORS * dim + HELD_VALUES)

    def ids_at_a_time(self, feature: str) -> int:
        """How many ids of a feature are fitted at a time, if there are so many."""
        return max(1, self.max_nbytes // self.nbytes_per_id(feature))

    def nbytes(self, feature: str) -> int:
        """Bytes that a refit of a table holds besides the model, at most; computed from sizes, not measured.

        What is held for each id that is fitted at a time, and while some of them are solved; for each id of the table
        its count and index; for each row the block of its id, if there are several; new pointers, packed and not yet
        packed, and new codebooks.
        """
        table, size = self._table(feature), self.ids_at_a_time(feature)
        num_learned = table.row_map.num_rows
        fitted = min(num_learned, size)
        solved = min(SOLVED, fitted) * SOLVED_COPIES * 4 * table.embedding_dim * self.block_dim(feature)
        blocks = len(self.source) * np.min_scalar_type(-(-num_learned // size)).itemsize if num_learned > size else 0
        pointers = 4 * num_learned * table.num_columns + table.nbytes
        return fitted * self.nbytes_per_id(feature) + solved + ID_NBYTES * table.num_embeddings + blocks + pointers

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
            check_index_state({f"table of feature {feature!r}": self._table(feature) for feature in events})
        return events

    def stage(
        self,
        *features: str,
        fold: Fold = ALL_ROWS,
        generator: torch.Generator | None = None,
        ranks: Ranks = ALONE,
    ) -> dict[str, StagedRefit]:
        """Compute what the tables of features become, from the same passes; each takes effect with its `apply`.

        A table of whose ids none has rows enough is left out.
        """
        tables = {feature: self._table(feature) for feature in features}
        with in_evaluation(self.model):
            group = GroupFit(self, tables, fold, generator, ranks)
            staged = {}
            for feature, fits in group.fits().items():
                step = RefitStep(
                    tables[feature],
                    fits,
                    group.priors[feature],
                    points_per_row=self.points_per_row,
                    is_first=feature not in self.priors,
                    generator=generator,
                )
                staged[feature] = step.stage()
        self.priors |= group.priors
        return staged

    def wanted(
        self, *features: str, fold: Fold = ALL_ROWS, generator: torch.Generator | None = None
    ) -> dict[str, Tensor]:
        """What ids want, not coded: tables `(num_embeddings, embedding_dim)`, which `stage` never holds.

        They say what coding costs: what would full tables score under the same prior? Nothing changes.
        """
        tables = {feature: self._table(feature) for feature in features}
        found = {}
        with in_evaluation(self.model):
            group = GroupFit(self, tables, fold, generator)
            for feature, fits in group.fits().items():
                mean = group.priors[feature].mean
                found[feature] = mean.new_zeros(tables[feature].num_embeddings, len(mean))
                found[feature][torch.cat(list(tables[feature].row_map.ids())).cpu()] = mean
                for fit in fits:
                    found[feature][fit.ids] = fit.vectors
        return found

    def state_dict(self) -> dict[str, Tensor]:
        """What the next round begins with: the priors."""
        return {f"{part}.{name}": value for name, prior in self.priors.items() for part, value in vars(prior).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        names = [key.removeprefix("mean.") for key in state if key.startswith("mean.")]
        parts = ("mean", "precision")  # copies: what lies elsewhere in memory is multiplied with other last bits
        self.priors = {name: Prior(*(state[f"{part}.{name}"].clone() for part in parts)) for name in names}

    @property
    def _num_folds(self) -> int:
        """Folds that tables are fitted on."""
        return self.folds - self.spare_fold

    def _table(self, feature: str) -> CCEEmbedding:
        if feature not in self.features:
            raise ValueError(f"feature must be one whose pointers are learned ({self.features}), got {feature!r}.")
        return self.tables[feature]


def _usual_nbytes(tables: Iterable[CCEEmbedding]) -> int:
    values = sum(table.num_embeddings * table.embedding_dim for table in tables)
    return min(max(values * FULL_NBYTES // 2, SMALLEST_NBYTES), LARGEST_NBYTES)
