"""Clustered Compositional Embeddings: hashing and clustering in turns, so that the model learns which ids share rows.

Tsang and Ahle, "Clustering the sketch: dynamic compression for embedding tables" (NeurIPS 2023), Algorithm 3. Piece
`i` of id `x` is `M_i[h_i(x)] + M'_i[h'_i(x)]`: a row it was clustered to and a row of a helper table it is hashed to.
The helper lets ids of one cluster grow apart again, so that the next clustering can do better than the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from cce.checks import check_flag
from cce.clustering import ClusterSettings, checked_settings
from cce.embeddings.base import MAX_IDS, check_budget, check_weight
from cce.embeddings.cluster_step import QUANTIZERS, ClusterStep, Learned
from cce.embeddings.clusterable import Clusterable, StagedClustering, check_clustering
from cce.embeddings.compositional import piece_shape
from cce.embeddings.initialization import normal_table, output_variance
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import choice, file_name, optional, rules, whole
from cce.indexing import Assignments, IdCounts, MultiplyShift, smallest_unsigned
from cce.indexing.multiply_shift import SEED_BYTES, stack_rows
from cce.indexing.sources import HashedRows, LearnedRows, RowSource
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Combine = Literal["concat", "circular", "sum"]
HelperStart = Literal["zero", "residual"]


class ClusteredEmbedding(LinearEmbedding, Clusterable):
    """`T[x] = [… | M_i[h_i(x)] + M'_i[h'_i(x)] | …]` with learned `h`, hashed `h'`, `num_rows` rows in each table.

    combine: "concat" (the paper), "circular" (each column clustered by the others) or "sum" (full-width pieces that
        add up, clustered as residuals): the last two are what the paper's appendix tried.
    helper_start: helper rows after a clustering: "zero" (the paper), or the mean "residual" that clustering left.
    num_helpers: helper tables per column; the paper has 1.
    num_learned: only ids below it have learned pointers; the rest stay hashed and cost nothing.
    first_rows: rows of each table before the first clustering, if more should be spent there.
    track_counts: count in training how often ids occur, for settings that sample or weigh by frequency.
    pointer_file: map the learned pointers from this file instead of holding them in memory.
    """

    method = "cce"
    option_checks = rules(
        num_rows=whole(1),
        num_columns=optional(whole(1)),
        num_helpers=whole(0),
        combine=choice(*QUANTIZERS),
        helper_start=choice("zero", "residual"),
        num_learned=optional(whole(0, MAX_IDS)),
        first_rows=optional(whole(1)),
        track_counts=check_flag,
        pointer_file=optional(file_name),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        num_columns: int | None = None,
        num_helpers: int = 1,
        combine: Combine = "concat",
        helper_start: HelperStart = "zero",
        num_learned: int | None = None,
        first_rows: int | None = None,
        settings: ClusterSettings | None = None,
        track_counts: bool = False,
        pointer_file: Path | str | None = None,
        padding_idx: int | None = None,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse)
        self.check_options(num_rows=num_rows, num_columns=num_columns, num_helpers=num_helpers, combine=combine)
        self.check_options(helper_start=helper_start, num_learned=num_learned, first_rows=first_rows)
        self.check_options(track_counts=track_counts, pointer_file=pointer_file)
        self.num_columns, self.width = piece_shape(embedding_dim, num_columns, summed=combine == "sum")
        self.num_helpers = num_helpers
        self.combine = combine
        self.helper_start = helper_start
        self.settings = checked_settings(settings)
        self.rows_after = num_rows  # from the first clustering on
        rows = num_rows if first_rows is None else first_rows
        self.assignments = Assignments(
            num_embeddings, self.num_columns, rows, num_learned=num_learned, path=pointer_file, generator=generator
        )
        self.counts = IdCounts(self.assignments.num_learned) if track_counts and self.can_cluster else None
        self.helper = MultiplyShift(self.num_columns * num_helpers, rows, generator=generator)
        num_terms = self.num_tables // (1 if combine == "sum" else self.num_columns)
        variance = output_variance(embedding_dim) / num_terms
        self.codebook = normal_table(self.num_tables * rows, self.width, variance=variance, generator=generator)

    @property
    def num_tables(self) -> int:
        """All tables: a clustered one and its helpers for each column."""
        return self.num_columns * (1 + self.num_helpers)

    @property
    def num_rows(self) -> int:
        """Rows of each table now."""
        return self.helper.num_rows

    @property
    def can_cluster(self) -> bool:
        """Whether any id has learned pointers."""
        return self.assignments.num_learned > 0

    def sources(self) -> tuple[int, int, list[RowSource]]:
        """A learned row and a hashed row of each helper, for each column.

        The codebook holds table after table: for each column the clustered one, then its helpers.
        """
        terms, num_rows = 1 + self.num_helpers, self.num_rows
        tables = range(self.num_tables)
        clustered = tables[::terms]
        helpers = [table for table in tables if table % terms]
        sources: list[RowSource] = [
            LearnedRows(self.assignments, clustered, [table * num_rows for table in clustered]),
            HashedRows(self.helper, helpers, [table * num_rows for table in helpers]),
        ]
        return (1, self.num_tables, sources) if self.combine == "sum" else (self.num_columns, terms, sources)

    @property
    def keeps_counts(self) -> bool:
        """Where that was asked for."""
        return self.counts is not None

    def count(self, ids: Tensor) -> None:
        """Count the ids of training, where that is wanted."""
        if self.counts is not None and self.training and torch.is_grad_enabled():
            self.counts.add(ids.reshape(-1), ignored=self.padding_idx)

    def arrange(self, learned: Tensor, hashed: Tensor, num_rows: int) -> Tensor:
        """Rows of the codebook `(n, columns, terms)` from rows within each of its tables."""
        hashed = hashed.view(learned.shape[0], self.num_columns, self.num_helpers)
        rows = torch.cat([learned.unsqueeze(-1), hashed], dim=-1)  # (n, num_columns, 1 + num_helpers)
        stacked = stack_rows(rows.flatten(1), num_rows)
        return stacked.unsqueeze(1) if self.combine == "sum" else stacked.view(rows.shape)

    @torch.no_grad()
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """Compute a clustering of the table as it is now (Algorithm 3, "Cluster")."""
        check_clustering(self, counts, self.assignments.num_learned, generator)
        if not self.can_cluster:
            raise ValueError("num_learned must be at least 1 to cluster, got 0.")
        if counts is None and self.counts is not None:
            counts = self.counts.counts
        return ClusterStep(self, self._vectors, generator).stage(counts)

    @torch.no_grad()
    def approximate(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Seed by product quantisation: pointers and rows from a trained table, helpers as after a clustering."""
        check_weight(self, weight)
        counts = None if self.counts is None else self.counts.counts
        ClusterStep(self, lambda ids: weight[ids.to(weight.device)], generator).stage(counts).apply()

    @torch.no_grad()
    def swap(self, learned: Learned, pointers: Tensor) -> None:
        """Become what was learned, whole or not at all, with its pointers staged.

        The codebook keeps its memory if it keeps its size.
        """
        with uninterrupted():
            self.assignments.replace(pointers, learned.num_rows)  # first: it alone can fail, and then nothing happened
            self._resize(learned.num_rows)
            self.codebook.grad = None  # it belonged to the old rows
            self.codebook.copy_(learned.tables.flatten(0, 2))
            self.helper.seeds.copy_(learned.helper.seeds)

    @classmethod
    def sizes(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As many rows in every table, helpers included, as the budget holds."""
        del num_embeddings
        summed = options["combine"] == "sum"
        num_columns, width = piece_shape(embedding_dim, options["num_columns"], summed=summed)
        per_row = num_columns * (1 + options["num_helpers"]) * width
        check_budget(cls.method, num_params, per_row)
        return {"num_rows": num_params // per_row}

    @classmethod
    def weigh(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> tuple[int, int]:
        """Rows of all tables; pointers of every learned id, and seeds."""
        summed = arguments["combine"] == "sum"
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"], summed=summed)
        num_tables = num_columns * (1 + arguments["num_helpers"])
        num_rows = arguments["first_rows"] or arguments["num_rows"]
        num_learned = arguments["num_learned"]
        num_learned = num_embeddings if num_learned is None else num_learned
        item = smallest_unsigned(num_rows).itemsize
        counts = 4 * num_learned if arguments["track_counts"] else 0
        return num_tables * num_rows * width, num_learned * num_columns * item + num_tables * SEED_BYTES + counts

    def _vectors(self, ids: Tensor) -> Tensor:
        return self.compose(ids.to(self.codebook.device))

    def _resize(self, num_rows: int) -> None:
        if num_rows != self.num_rows:
            self.helper.num_rows = num_rows
            self.codebook.data = self.codebook.new_empty(self.num_tables * num_rows, self.width)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A checkpoint from after the first clustering may have other rows than the table started with."""
        codebook = state_dict.get(prefix + "codebook")
        if codebook is not None and len(codebook) == self.num_tables * self.rows_after != len(self.codebook):
            self._resize(self.rows_after)
            dtype = smallest_unsigned(self.rows_after)
            staged = self.assignments.stage(self.assignments.pointers.to(dtype))
            self.assignments.replace(staged, self.rows_after)
        super()._load_from_state_dict(state_dict, prefix, *args)
