"""Clustered Compositional Embeddings: hashing and clustering in turns, so that the model learns which ids share rows.

Tsang and Ahle, "Clustering the sketch: dynamic compression for embedding tables" (NeurIPS 2023), Algorithm 3. Piece
`i` of id `x` is `M_i[h_i(x)] + M'_i[h'_i(x)]`: a row it was clustered to and a row of a helper table it is hashed to.
The helper lets ids of one cluster grow apart again, so that the next clustering can do better than the last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from cce.checks import check_flag
from cce.clustering import ClusterSettings, checked_settings
from cce.embeddings.base import MAX_IDS, check_weight
from cce.embeddings.cluster_step import QUANTIZERS, ClusterStep, Learned
from cce.embeddings.clusterable import Clusterable, StagedClustering, check_clustering
from cce.embeddings.clustered_sizes import ClusteredSizes
from cce.embeddings.codebook_layout import CodebookLayout
from cce.embeddings.event_count import EventCount
from cce.embeddings.initialization import StartScale, normal_table
from cce.embeddings.options import choice, file_name, optional, rules, tensor, whole
from cce.embeddings.presets import PRESETS, PresetName
from cce.embeddings.quantized import NUM_SHARED, QuantizedEmbedding
from cce.embeddings.rare_ids import with_rare_vector
from cce.indexing import Assignments, HashedRows, IdCounts, LearnedRows, MultiplyShift, PointerStore, RowSource
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cce.clustering import Source

FITTED_AT_A_TIME = 1 << 14  # ids, of another table that this one is fitted to

Combine = Literal["concat", "circular", "sum"]
HelperStart = Literal["zero", "residual"]


class ClusteredEmbedding(ClusteredSizes, Clusterable):
    """`T[x] = [… | M_i[h_i(x)] + M'_i[h'_i(x)] | …]` with learned `h`, hashed `h'`, `num_rows` rows in each table.

    preset: what the other arguments are if they are not given: "tuned" (8 columns where they divide `embedding_dim`,
        short clusterings), or "paper" (4 columns, its k-means). `training_defaults(preset)` has the schedule, and the
        ids that learn pointers by their counts.
    combine: "concat" (the paper), "circular" (each column clustered by the others) or "sum" (full-width pieces that
        add up, clustered as residuals): the last two are what the paper's appendix tried.
    helper_start: helper rows after a clustering: "zero" (the paper), or the mean "residual" that clustering left.
    num_helpers: helper tables per column; the paper has 1.
    num_learned: only ids below it have learned pointers; the rest stay hashed and cost nothing. By default all have.
    counts: `(num_embeddings,)`, instead of `num_learned`: how often each id occurs in training. The preset then says
        which ids learn pointers, as it does in a training run; ids must be numbered by falling count.
    share_tail: all ids from `num_learned` on have one vector, the first rows, instead of hashed rows.
    max_rows: most rows of each table where a budget leaves room for more, be it for the full table, unless that is no
        larger. After refits more rows score worse: rows that few ids share know these ids' labels by heart
        (docs/refit.md).
    first_rows: rows of each table before the first clustering, if more should be spent there.
    settle_after: the number of the clustering at which helpers end and their rows go to the clusters: the paper's last
        step, "CE concat". The table is then not clustered again. By default helpers stay.
    track_counts: count in training how often ids occur, for settings that sample or weigh by frequency.
    pointer_file: map the learned pointers from this file instead of holding them in memory.
    """

    method = "cce"
    option_checks = rules(
        num_rows=whole(1),
        max_rows=optional(whole(1)),
        preset=choice(*PRESETS),
        num_columns=optional(whole(1)),
        num_helpers=whole(0),
        combine=choice(*QUANTIZERS),
        helper_start=choice("zero", "residual"),
        num_learned=optional(whole(0, MAX_IDS)),
        share_tail=check_flag,
        counts=optional(tensor),
        first_rows=optional(whole(1)),
        settle_after=optional(whole(1)),
        track_counts=check_flag,
        pointer_file=optional(file_name),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        max_rows: int | None = None,
        preset: PresetName = "tuned",
        num_columns: int | None = None,
        num_helpers: int = 1,
        combine: Combine = "concat",
        helper_start: HelperStart = "zero",
        num_learned: int | None = None,
        share_tail: bool = False,
        counts: Tensor | None = None,
        first_rows: int | None = None,
        settle_after: int | None = None,
        settings: ClusterSettings | None = None,
        track_counts: bool = False,
        pointer_file: Path | str | None = None,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        self.check_options(num_rows=num_rows, num_columns=num_columns, num_helpers=num_helpers, combine=combine)
        self.check_options(helper_start=helper_start, num_learned=num_learned, first_rows=first_rows)
        self.check_options(track_counts=track_counts, pointer_file=pointer_file, preset=preset)
        self.check_options(share_tail=share_tail, settle_after=settle_after, max_rows=max_rows)
        if max_rows is not None and num_rows > max_rows:
            raise ValueError(f"num_rows must be at most max_rows={max_rows}, got {num_rows}.")
        if share_tail and combine == "sum":
            raise ValueError(f"share_tail must be False with combine='sum', whose rows add up, got {share_tail}.")
        if counts is not None and counts.shape != (num_embeddings,):
            raise ValueError(f"counts must have shape ({num_embeddings},), got {tuple(counts.shape)}.")
        num_learned = self.find_num_learned(num_learned, counts, preset)
        tables = {"preset": preset, "num_columns": num_columns, "num_helpers": num_helpers, "combine": combine}
        layout = CodebookLayout.of(embedding_dim, {"num_rows": num_rows, "first_rows": first_rows} | tables)
        self.num_columns, self.most_helpers, self.width = layout.num_columns, num_helpers, layout.width
        self.combine = combine
        self.helper_start = helper_start
        self.settings = checked_settings(PRESETS[preset].settings if settings is None else settings)
        self.rows_after = num_rows  # from the first clustering on
        self.settle_after = settle_after
        self.settled_rows = num_rows * (1 + num_helpers) if settle_after else None
        self._check_settling(first_rows)
        self.clusterings = EventCount() if settle_after else None
        self.assignments = Assignments(
            num_embeddings,
            layout.num_columns,
            layout.num_rows,
            num_learned=num_learned,
            share_tail=share_tail,
            path=pointer_file,
            generator=generator,
        )
        self.helper = MultiplyShift(len(layout.helpers), layout.num_rows, generator=generator)
        self.counts = IdCounts(self.assignments.num_learned) if track_counts and self.can_cluster else None
        _, num_terms = layout.slots
        variance = self.start_variance / num_terms
        self.codebook = normal_table(*layout.shape, variance=variance, generator=generator)

    def codebook_layout(self, num_rows: int | None = None) -> CodebookLayout:
        """The layout of its tables in the codebook, now or with another number of rows."""
        rows = self.num_rows if num_rows is None else num_rows
        num_helpers = 0 if rows == self.settled_rows else self.most_helpers
        return CodebookLayout(self.num_columns, num_helpers, rows, self.width, is_sum=self.combine == "sum")

    @property
    def num_helpers(self) -> int:
        """Helper tables per column now: none once the table has settled."""
        return self.codebook_layout().num_helpers

    @property
    def num_rows(self) -> int:
        """Rows of each table now."""
        return self.helper.num_rows

    @property
    def can_cluster(self) -> bool:
        """Whether any id has learned pointers, and helpers that could tell ids of a cluster apart are still there."""
        return self.assignments.num_learned > 0 and self.num_rows != self.settled_rows

    @property
    def next_rows(self) -> int:
        """Rows of each table after the next clustering."""
        if self.settled_rows is None or int(self.clusterings or 0) + 1 < (self.settle_after or 0):
            return self.rows_after
        return self.settled_rows

    def sources(self) -> tuple[int, int, list[RowSource]]:
        """A learned row and a hashed row of each helper, for each column."""
        layout = self.codebook_layout()
        clustered, helpers = layout.clustered, layout.helpers
        sources: list[RowSource] = [
            LearnedRows(self.assignments, clustered, layout.first_rows(clustered)),
            HashedRows(self.helper, helpers, layout.first_rows(helpers)),
        ]
        return (*layout.slots, sources)

    @property
    def keeps_counts(self) -> bool:
        """Whether ids are counted in training."""
        return self.counts is not None

    def count(self, ids: Tensor) -> None:
        """Count the ids of training, if counts are tracked."""
        if self.counts is not None and self.training and torch.is_grad_enabled():
            self.counts.add(ids.reshape(-1), ignored=self.padding_idx)

    @torch.no_grad()
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """Compute a clustering of the table as it is now (Algorithm 3, "Cluster")."""
        check_clustering(self, counts, self.assignments.num_learned, generator)
        if self.num_rows == self.settled_rows:
            raise ValueError(f"settle_after={self.settle_after} clusterings were made: the table has settled.")
        if not self.can_cluster:
            raise ValueError("num_learned must be at least 1 to cluster, got 0.")
        if counts is None and self.counts is not None:
            counts = self.counts.counts
        return ClusterStep(self, self._vectors, generator, start=self._last_centroids()).stage(counts)

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Seed by product quantisation: pointers and rows from a trained table, helpers as after a clustering."""
        check_weight(self, weight)
        counts = None if self.counts is None else self.counts.counts
        ClusterStep(self, lambda ids: weight[ids.to(weight.device)], generator).stage(counts).apply()

    @torch.no_grad()
    def fit_where_it_counts(self, source: Source, counts: Tensor, *, generator: torch.Generator | None = None) -> None:
        """The same, with ids weighed by their counts; those that were never seen are like the rare ones."""
        check_clustering(self, counts, self.num_embeddings, generator)
        num_learned, counts = self.assignments.num_learned, counts.cpu()
        source = with_rare_vector(source, counts, num_learned, share_tail=self.assignments.share_tail)
        settings = replace(self.settings, weighted=True, block_size=min(self.settings.block_size, FITTED_AT_A_TIME))
        ClusterStep(self, source, generator, settings=settings).stage(counts[:num_learned]).apply()

    def as_codes(self, bits: int, *, generator: torch.Generator | None = None) -> QuantizedEmbedding | None:
        """Codes of the ids that learn pointers, from the same start; the others share a row if they share a vector."""
        if not self.can_cluster:
            return None
        codes = QuantizedEmbedding(
            self.num_embeddings,
            self.embedding_dim,
            **_code_rows(self.assignments.num_learned, share_tail=self.assignments.share_tail),
            bits=bits,
            padding_idx=self.padding_idx,
            start_scale=self.start_scale,
            generator=generator,
        )
        return codes.to(self.codebook.device, self.codebook.dtype)

    @classmethod
    def codes_nbytes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any], bits: int) -> int:
        """Bytes of what `as_codes` makes."""
        rows = _code_rows(arguments["num_learned"], share_tail=arguments["share_tail"])
        options = QuantizedEmbedding.complete_options(rows | {"bits": bits})
        return QuantizedEmbedding.footprint(num_embeddings, embedding_dim, options).nbytes

    @torch.no_grad()
    def swap(self, learned: Learned, pointers: PointerStore) -> None:
        """Become what was learned, whole or not at all, with its pointers staged.

        The codebook keeps its memory if it keeps its size.
        """
        with uninterrupted():
            self.assignments.replace(pointers)  # first: it alone can fail, and then nothing happened
            self._resize(learned.num_rows)
            self.codebook.grad = None  # it belonged to the old rows
            self.codebook.copy_(learned.tables.flatten(0, 2))
            self.helper.seeds.copy_(learned.helper.seeds)
            if self.clusterings is not None:
                self.clusterings.add_one()

    def _vectors(self, ids: Tensor) -> Tensor:
        return self.embed(ids.to(self.codebook.device))

    def _last_centroids(self) -> Tensor | None:
        """The clustered rows `(num_columns, num_rows, width)`, if the next clustering is to begin there.

        Before the first, they are no centroids: ids point where they are hashed to.
        """
        if not self.settings.warm_iter or self.combine == "circular":
            return None
        ids = torch.arange(min(self.assignments.num_learned, 64), device="cpu")
        hashed = self.assignments.hash(ids.to(self.assignments.hash.seeds.device)).cpu()
        if self.num_rows != self.next_rows or torch.equal(self.assignments.pointers.read(ids), hashed):
            return None
        tables = self.codebook.detach().view(self.num_columns, 1 + self.num_helpers, self.num_rows, self.width)
        return tables[:, 0]

    def _resize(self, num_rows: int) -> None:
        layout = self.codebook_layout(num_rows)
        if num_rows != self.num_rows:
            self.helper.num_rows, self.helper.num_hashes = num_rows, len(layout.helpers)
            self.helper.seeds = self.helper.seeds[: len(layout.helpers)].clone()
        if self.codebook.shape != layout.shape:
            self.codebook.data = self.codebook.new_empty(layout.shape)

    def _check_settling(self, first_rows: int | None) -> None:
        """Reject a table that has no rows to give, or whose form could not be told from its rows."""
        if self.settle_after and self.most_helpers == 0:
            raise ValueError("num_helpers must be at least 1 with settle_after, got 0.")
        if first_rows is not None and first_rows == self.settled_rows:
            raise ValueError(
                f"first_rows must differ from {first_rows}, the rows of a settled table, got {first_rows}."
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A checkpoint from after the first clustering may have other rows than the table started with."""
        codebook, seeds = state_dict.get(prefix + "codebook"), state_dict.get(prefix + "helper.seeds")
        rows, settled = self.rows_after, self.settled_rows
        if settled is not None and seeds is not None and not len(seeds):
            rows = settled
        num_rows, _ = self.codebook_layout(rows).shape
        if codebook is not None and len(codebook) == num_rows and (rows == settled or num_rows != len(self.codebook)):
            self._resize(rows)
            self.assignments.resize(rows)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _code_rows(num_learned: int | None, *, share_tail: bool) -> dict[str, Any]:
    """Own codes for ids that learn pointers; the others share what they share later, or rows by hash."""
    return {"num_learned": num_learned, "num_shared": 1 if share_tail else NUM_SHARED}
