"""Clustered Compositional Embeddings: hashing and clustering in turns, so that the model learns which ids share rows.

Tsang and Ahle, "Clustering the sketch: dynamic compression for embedding tables" (NeurIPS 2023), Algorithm 3. Piece
`i` of id `x` is `M_i[h_i(x)] + M'_i[h'_i(x)]`: a row it was clustered to and a row of a helper table it is hashed to.
The helper lets ids of one cluster grow apart again, so that the next clustering can do better than the last.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from cce.checks import check_choice, check_divides, check_range
from cce.clustering.quantize import (
    CircularQuantizer,
    ClusterSettings,
    ProductQuantizer,
    Quantizer,
    ResidualQuantizer,
    Source,
    fit_to_sample,
)
from cce.embeddings.base import check_budget, check_weight
from cce.embeddings.clusterable import Clusterable, ClusterEvent
from cce.embeddings.compositional import default_columns
from cce.embeddings.initialization import normal_table, output_variance
from cce.embeddings.linear import LinearEmbedding, column_offsets
from cce.indexing import Assignments, MultiplyShift
from cce.indexing.assignments import blocks
from cce.kernels import gather_sum

if TYPE_CHECKING:
    from collections.abc import Mapping

Combine = Literal["concat", "circular", "sum"]
HelperStart = Literal["zero", "residual"]
QUANTIZERS: dict[str, type[Quantizer]] = {
    "concat": ProductQuantizer,
    "circular": CircularQuantizer,
    "sum": ResidualQuantizer,
}


class ClusteredEmbedding(LinearEmbedding, Clusterable):
    """`T[x] = [… | M_i[h_i(x)] + M'_i[h'_i(x)] | …]` with learned `h`, hashed `h'`, `num_rows` rows in each table.

    combine: "concat" (the paper), "circular" (each column clustered by the others) or "sum" (full-width pieces that
        add up, clustered as residuals): the last two are what the paper's appendix tried.
    helper_start: helper rows after a clustering: "zero" (the paper), or the mean "residual" that clustering left.
    num_helpers: helper tables per column; the paper has 1.
    num_learned: only ids below it have learned pointers; the rest stay hashed and cost nothing.
    first_rows: rows of each table before the first clustering, if more should be spent there.
    """

    method = "cce"
    offsets: Tensor

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
        padding_idx: int | None = None,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse)
        check_choice("helper_start", helper_start, ("zero", "residual"))
        check_range("num_helpers", num_helpers, 0, 2**31)
        self.num_columns, self.width = _shape(embedding_dim, num_columns, combine)
        self.num_helpers = num_helpers
        self.combine = combine
        self.helper_start = helper_start
        self.settings = settings or ClusterSettings()
        self.rows_after = num_rows  # from the first clustering on
        rows = num_rows if first_rows is None else first_rows
        self.assignments = Assignments(
            num_embeddings, self.num_columns, rows, num_learned=num_learned, generator=generator
        )
        self.helper = MultiplyShift(self.num_columns * num_helpers, rows, generator=generator)
        self.register_buffer("offsets", _offsets(self.num_columns, 1 + num_helpers, rows), persistent=False)
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

    def lookup(self, ids: Tensor) -> tuple[Tensor, None]:
        """A learned row and a hashed row of each helper, for each column."""
        learned = self.assignments(ids).unsqueeze(-1)  # (n, num_columns, 1)
        hashed = self.helper(ids).view(ids.shape[0], self.num_columns, self.num_helpers)
        rows = torch.cat([learned, hashed], dim=-1) + self.offsets  # (n, num_columns, 1 + num_helpers)
        return self._arrange(rows), None

    @torch.no_grad()
    def cluster(self, *, generator: torch.Generator | None = None) -> ClusterEvent:
        """Cluster the table as it is now (Algorithm 3, "Cluster"). In place, unless the number of rows changes."""
        started = time.perf_counter()
        if self.assignments.num_learned == 0:
            raise ValueError("num_learned must be at least 1 to cluster, got 0.")
        learned = self._learn(self._vectors, generator)
        before, moved = self.assignments, 0
        for ids in blocks(before.num_learned, self.settings.block_size):
            moved += int((learned.assignments(ids) != before(ids)).sum())
        resized = self._swap(learned)
        seconds = time.perf_counter() - started
        share = moved / (before.num_learned * self.num_columns)
        return ClusterEvent(before.num_learned, self.num_rows, learned.inertias, share, seconds, resized)

    @torch.no_grad()
    def approximate(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Seed by product quantisation: pointers and rows from a trained table, helpers as after a clustering."""
        check_weight(self, weight)
        self._swap(self._learn(_rows_of(weight), generator))

    @classmethod
    def sizes(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As many rows in every table, helpers included, as the budget holds."""
        del num_embeddings
        num_columns, width = _shape(embedding_dim, options["num_columns"], options["combine"])
        per_row = num_columns * (1 + options["num_helpers"]) * width
        check_budget(cls.method, num_params, per_row)
        return {"num_rows": num_params // per_row}

    def _vectors(self, ids: Tensor) -> Tensor:
        return self.compose(ids.to(self.codebook.device))

    def _learn(self, source: Source, generator: torch.Generator | None) -> _Learned:
        """All that a clustering changes, computed aside: nothing of the table is touched yet."""
        quantizer = QUANTIZERS[self.combine](self.num_columns, self.rows_after, self.settings)
        num_learned = self.assignments.num_learned
        fit_to_sample(quantizer, source, num_learned, generator=generator)
        assignments = Assignments(
            self.num_embeddings, self.num_columns, self.rows_after, num_learned=num_learned, generator=generator
        )
        for ids in blocks(num_learned, self.settings.block_size):
            assignments.write(ids, quantizer.encode(source(ids).float()))
        helper = MultiplyShift(self.num_columns * self.num_helpers, self.rows_after, generator=generator)
        tables = quantizer.codebooks.unsqueeze(1)  # (num_columns, 1, rows, width)
        tables = functional.pad(tables, (0, 0, 0, 0, 0, self.num_helpers))  # helpers at zero
        learned = _Learned(assignments, helper, tables.to(self.codebook), quantizer.inertias)
        if self.helper_start == "residual":
            self._start_helpers_at_residual(learned, source)
        return learned

    def _start_helpers_at_residual(self, learned: _Learned, source: Source) -> None:
        """Set helper rows to the mean of what is left over for the ids that hash to them, one helper after another."""
        columns = range(self.num_columns)
        helpers = range(1, 1 + self.num_helpers)
        if self.combine == "sum":  # every table is full-width: all of them share one residual
            groups = [[(column, helper)] for helper in helpers for column in columns]
        else:
            groups = [[(column, helper) for column in columns] for helper in helpers]
        for group in groups:
            sums, counts = torch.zeros_like(learned.tables), torch.zeros_like(learned.tables[..., :1])
            for ids in blocks(self.assignments.num_learned, self.settings.block_size):
                rows = learned.rows(ids)  # (n, num_columns, 1 + num_helpers)
                left = source(ids).to(sums) - self._decode(learned, rows)
                for column, helper in group:
                    piece = left if self.combine == "sum" else left.chunk(self.num_columns, dim=1)[column]
                    index = rows[:, column, helper].to(sums.device)
                    sums[column, helper].index_add_(0, index, piece)
                    counts[column, helper].index_add_(0, index, torch.ones_like(piece[:, :1]))
            learned.tables.add_(sums / counts.clamp(min=1))

    def _decode(self, learned: _Learned, rows: Tensor) -> Tensor:
        offsets = _offsets(self.num_columns, 1 + self.num_helpers, self.rows_after)
        shaped = self._arrange((rows + offsets).to(learned.tables.device))
        return gather_sum(learned.tables.flatten(0, 2), shaped)

    def _arrange(self, rows: Tensor) -> Tensor:
        """Rows `(n, num_columns, terms)`, or all of them as terms of one column when pieces add up."""
        return rows.flatten(1).unsqueeze(1) if self.combine == "sum" else rows

    def _swap(self, learned: _Learned) -> bool:
        """Become what was learned; True if the codebook had to change its shape."""
        resized = self.num_rows != self.rows_after
        if resized:
            self._resize(self.rows_after)
        self.codebook.copy_(learned.tables.flatten(0, 2))
        self.helper.seeds.copy_(learned.helper.seeds)
        self.assignments.pointers.copy_(learned.assignments.pointers)
        return resized

    def _resize(self, num_rows: int) -> None:
        device, num_learned = self.codebook.device, self.assignments.num_learned
        self.assignments = Assignments(self.num_embeddings, self.num_columns, num_rows, num_learned=num_learned)
        self.helper = MultiplyShift(self.num_columns * self.num_helpers, num_rows)
        self.offsets = _offsets(self.num_columns, 1 + self.num_helpers, num_rows).to(device)
        self.codebook.data = self.codebook.new_empty(self.num_tables * num_rows, self.width)
        self.to(device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A checkpoint from after the first clustering may have other rows than the table started with."""
        codebook = state_dict.get(prefix + "codebook")
        if codebook is not None and len(codebook) == self.num_tables * self.rows_after != len(self.codebook):
            self._resize(self.rows_after)
        super()._load_from_state_dict(state_dict, prefix, *args)


@dataclass(frozen=True)
class _Learned:
    """What a clustering found, before it takes effect."""

    assignments: Assignments
    helper: MultiplyShift
    tables: Tensor  # (num_columns, 1 + num_helpers, rows, width)
    inertias: tuple[float, ...]

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `(n, num_columns, 1 + num_helpers)` within each table."""
        hashed = self.helper(ids).view(len(ids), *self.tables.shape[:1], self.tables.shape[1] - 1)
        return torch.cat([self.assignments(ids).unsqueeze(-1), hashed], dim=-1)


def _shape(embedding_dim: int, num_columns: int | None, combine: Combine) -> tuple[int, int]:
    """The number of columns and the width of a piece."""
    check_choice("combine", combine, QUANTIZERS)
    num_columns = default_columns(embedding_dim) if num_columns is None else num_columns
    check_range("num_columns", num_columns, 1, 2**31)
    if combine == "sum":
        return num_columns, embedding_dim
    check_divides("num_columns", num_columns, "embedding_dim", embedding_dim)
    return num_columns, embedding_dim // num_columns


def _offsets(num_columns: int, num_terms: int, num_rows: int) -> Tensor:
    """Where each table begins in the codebook: `(num_columns, num_terms)`."""
    return column_offsets([num_rows] * (num_columns * num_terms)).view(num_columns, num_terms)


def _rows_of(weight: Tensor) -> Source:
    return lambda ids: weight[ids.to(weight.device)]
