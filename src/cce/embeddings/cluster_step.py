"""One clustering of a CCE table, in five steps: sample, fit, assign, measure what changes, and swap.

Everything before the swap is computed from the table as it was, and leaves it so: an error or an interruption on the
way changes nothing. The table that CCE stands for, as tall as the vocabulary, is never in memory: vectors are computed
for the sample and then block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from cce.clustering import (
    CircularQuantizer,
    ProductQuantizer,
    Quantizer,
    ResidualQuantizer,
    Sample,
    Source,
    churn,
    column_entropies,
    contingency,
    count_rows,
    draw_sample,
    encode_all,
    piece_size,
    vectors_of,
)
from cce.embeddings.clusterable import ClusterEvent, RowTransfer, StagedClustering, StepTimer, clean_interrupts
from cce.indexing import MultiplyShift, PointerStore, blocks
from cce.kernels import gather_sum

if TYPE_CHECKING:
    from cce.clustering import ClusterSettings
    from cce.embeddings.clustered import ClusteredEmbedding

QUANTIZERS: dict[str, type[Quantizer]] = {
    "concat": ProductQuantizer,
    "circular": CircularQuantizer,
    "sum": ResidualQuantizer,
}
MAX_COUNTED = 1 << 22  # values of sampled vectors whose ids are counted: which rows took them from which
COMPARED_PER_ROW = 16  # of those, ids for each row of a table on which change is measured
COMPARED = 1 << 12  # at least


@dataclass(frozen=True)
class Quantized:
    """Vectors of ids as rows of codebooks."""

    sampled: Tensor  # ids of the sample that codebooks were fitted to, in order
    codebooks: Tensor  # (num_columns, num_rows, width)
    pointers: PointerStore  # of all learned ids
    inertias: tuple[float, ...]  # of each column


@dataclass(frozen=True)
class Learned:
    """What a clustering found, before it takes effect."""

    pointers: PointerStore  # of all learned ids
    helper: MultiplyShift  # the new hash functions of the helpers
    tables: Tensor  # (num_columns, 1 + num_helpers, num_rows, width)

    @property
    def num_rows(self) -> int:
        """Rows of each table."""
        return self.tables.shape[2]


class ClusterStep:
    """Algorithm 3, "Cluster", for one table: its vectors come from `source`, which is the table itself or another.

    A subclass may find codebooks and pointers in another way, in `quantize`.
    """

    def __init__(
        self,
        table: ClusteredEmbedding,
        source: Source,
        generator: torch.Generator | None,
        *,
        start: Tensor | None = None,
        settings: ClusterSettings | None = None,
    ) -> None:
        self.table = table
        self.settings = table.settings if settings is None else settings
        self.source = source
        self.generator = generator
        self.start = start  # codebooks at which k-means begins
        self.timer = StepTimer()

    @torch.no_grad()
    def stage(self, counts: Tensor | None) -> StagedClustering:
        """All steps but the swap."""
        with clean_interrupts():
            quantized = self.quantize(counts)
            if self.table.assignments.share_tail:
                quantized = _with_tail_first(quantized, self.tail_vector())
        with self.timer("helpers"):
            learned = self._start_helpers(quantized)
        with self.timer("measure"):
            ids = quantized.sampled
            counted = ids[:: 1 + len(ids) * self.table.embedding_dim // MAX_COUNTED]
            event = self._event(learned, quantized.inertias, self._before(counted), self._after(learned, counted))
        with self.timer("stage"):
            pointers = self.table.assignments.stage(learned.pointers)

        def apply() -> None:
            with self.timer("swap"):
                self.table.swap(learned, pointers)

        return StagedClustering(event, apply)

    def quantize(self, counts: Tensor | None) -> Quantized:
        """Codebooks from a sample of the vectors, and the pointers of all ids; the table stays as it is."""
        table, num_learned = self.table, self.table.assignments.num_learned
        settings = self.settings if self.start is None else self.settings.warm
        quantizer = QUANTIZERS[table.combine](table.num_columns, table.next_rows, settings, start=self.start)
        with self.timer("sample"):
            ids, weights = draw_sample(num_learned, table.next_rows, settings, counts=counts, generator=self.generator)
        with self.timer("fit"):
            quantizer.fit(Sample(self.source, ids, table.embedding_dim, weights), self.generator)
        with self.timer("assign"):
            pointers = encode_all(quantizer, self.source, num_learned, table.embedding_dim)
        return Quantized(ids, quantizer.codebooks, pointers, quantizer.inertias)

    def tail_vector(self) -> Tensor:
        """The vector that ids without pointers share, or none `(0, embedding_dim)`."""
        num_learned = self.table.assignments.num_learned
        first = [num_learned] if num_learned < self.table.num_embeddings else []
        return vectors_of(self.source, torch.tensor(first, dtype=torch.int64), self.table.embedding_dim)

    def _start_helpers(self, quantized: Quantized) -> Learned:
        """New hash functions for the helpers, and their rows at zero or at what the centroids leave over."""
        table, layout = self.table, self.table.codebook_layout(quantized.codebooks.shape[1])
        helper = MultiplyShift(len(layout.helpers), layout.num_rows, generator=self.generator)
        tables = quantized.codebooks.unsqueeze(1)  # (num_columns, 1, num_rows, width)
        tables = functional.pad(tables, (0, 0, 0, 0, 0, layout.num_helpers)).to(table.codebook)
        learned = Learned(quantized.pointers, helper.to(tables.device), tables)
        if table.helper_start == "residual":
            for group in self._helper_groups(layout.num_helpers):
                self._add_mean_residual(learned, group)
        return learned

    def _helper_groups(self, num_helpers: int) -> list[list[tuple[int, int]]]:
        """(column, helper) pairs that can be filled in one pass over the ids, since they share no residual."""
        columns, helpers = range(self.table.num_columns), range(1, 1 + num_helpers)
        if self.table.combine == "sum":
            return [[(column, helper)] for helper in helpers for column in columns]
        return [[(column, helper) for column in columns] for helper in helpers]

    def _add_mean_residual(self, learned: Learned, group: list[tuple[int, int]]) -> None:
        """Set the helper rows of `group` to the mean residual of the ids that hash to them."""
        sums, counts = torch.zeros_like(learned.tables), torch.zeros_like(learned.tables[..., :1])
        size = min(self.table.settings.block_size, piece_size(self.table.embedding_dim))
        for ids in blocks(learned.pointers.num_ids, size):
            hashed = learned.helper(ids.to(sums.device)).view(len(ids), *sums.shape[:1], -1)  # (n, columns, helpers)
            residual = self.source(ids).to(sums) - self._decode(learned, ids, learned.pointers.read(ids))
            for column, helper in group:
                piece = self._piece(residual, column)
                rows = hashed[:, column, helper - 1]
                sums[column, helper].index_add_(0, rows, piece)
                counts[column, helper].index_add_(0, rows, torch.ones_like(piece[:, :1]))
        learned.tables.add_(sums / counts.clamp(min=1))

    def _decode(self, learned: Learned, ids: Tensor, rows: Tensor) -> Tensor:
        """The vectors of ids that point to `rows`, as they will be after the swap."""
        device, layout = learned.tables.device, self.table.codebook_layout(learned.num_rows)
        arranged = layout.arrange(rows.to(device), learned.helper(ids.to(device)))
        return gather_sum(learned.tables.flatten(0, 2), arranged)

    def _piece(self, vectors: Tensor, column: int) -> Tensor:
        if self.table.combine == "sum":
            return vectors
        return vectors.chunk(self.table.num_columns, dim=1)[column]

    def _before(self, ids: Tensor) -> Snapshot:
        table, device = self.table, self.table.codebook.device
        compared = ids[:: self._step_between(ids)]
        vectors = vectors_of(lambda piece: table.embed(piece.to(device)), compared, table.embedding_dim)
        return Snapshot(table.assignments(ids.to(device)).cpu(), table.num_rows, vectors)

    def _after(self, learned: Learned, ids: Tensor) -> Snapshot:
        """What the swap will make of the same ids."""
        pointers = learned.pointers.read(ids)
        size, step = piece_size(self.table.embedding_dim), self._step_between(ids)
        pieces = zip(torch.split(ids[::step], size), torch.split(pointers[::step], size), strict=True)
        vectors = torch.cat([self._decode(learned, *piece).float() for piece in pieces])
        return Snapshot(pointers, learned.num_rows, vectors)

    def _step_between(self, ids: Tensor) -> int:
        """How many of the counted ids come from one that is compared to the next."""
        return max(1, len(ids) // max(COMPARED, COMPARED_PER_ROW * self.table.rows_after))

    def _event(self, learned: Learned, inertias: tuple[float, ...], before: Snapshot, after: Snapshot) -> ClusterEvent:
        table = self.table
        dead, overfull = count_rows(learned.pointers.blocks(), learned.num_rows)
        order, step = min(2, table.num_columns), self._step_between(before.pointers)
        old, new = before.pointers[::step], after.pointers[::step]
        return ClusterEvent(
            num_ids=table.assignments.num_learned,
            num_rows=learned.num_rows,
            seconds=self.timer.seconds,
            inertias=inertias,
            churn=churn(old, new),
            dead_rows=dead,
            overfull_rows=overfull,
            entropies_before=column_entropies(old, order),
            entropies_after=column_entropies(new, order),
            moved=float((after.vectors - before.vectors).norm() / before.vectors.norm().clamp(min=1e-30)),
            transfer=_transfer(table, before, after),
        )


def _with_tail_first(quantized: Quantized, tail: Tensor) -> Quantized:
    """The same, with the rows that are nearest to a vector, if there is one, first in their columns."""
    codebooks, old = quantized.codebooks.clone(), quantized.pointers
    if not len(tail):
        return quantized
    nearest = (codebooks - tail.to(codebooks).view(len(codebooks), 1, -1)).square().sum(2).argmin(1)  # (num_columns)
    columns = torch.arange(len(codebooks), device=codebooks.device)
    firsts = codebooks[:, 0].clone()
    codebooks[:, 0], codebooks[columns, nearest] = codebooks[columns, nearest].clone(), firsts
    pointers, nearest = PointerStore(old.num_ids, old.num_columns, old.num_rows), nearest.cpu()
    for ids in blocks(old.num_ids):
        rows = old.read(ids)
        swapped = torch.where(rows == nearest, 0, torch.where(rows == 0, nearest, rows))
        pointers.write(int(ids[0]), swapped)
    return Quantized(quantized.sampled, codebooks, pointers, quantized.inertias)


@dataclass(frozen=True)
class Snapshot:
    """What some ids look like before or after the swap."""

    pointers: Tensor  # (n, num_columns) int64
    num_rows: int  # of each table
    vectors: Tensor  # float32, (m, embedding_dim): of every so many of them


def _transfer(table: ClusteredEmbedding, before: Snapshot, after: Snapshot) -> RowTransfer:
    """Which row of the codebook each clustered row took its ids from, counted on the sample."""
    pairs = [contingency(*pointers) for pointers in zip(before.pointers.T, after.pointers.T, strict=True)]
    old, new = table.codebook_layout(before.num_rows), table.codebook_layout(after.num_rows)
    return RowTransfer(
        parameter=table.codebook,
        new_rows=torch.cat([new.clustered_rows(rows, column) for column, (_, rows, _) in enumerate(pairs)]),
        old_rows=torch.cat([old.clustered_rows(rows, column) for column, (rows, _, _) in enumerate(pairs)]),
        counts=torch.cat([count for _, _, count in pairs]),
        restarted=new.helper_rows(),
        old_restarted=old.helper_rows(),
        num_old_rows=old.shape[0],
    )
