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
from cce.indexing import MultiplyShift, PointerStore, common_generator, stack_rows
from cce.kernels import gather_sum

if TYPE_CHECKING:
    from cce.clustering import ClusterSettings
    from cce.embeddings.clustered import ClusteredEmbedding

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

    def vectors(self, ids: Tensor, rows: Tensor, embedding_dim: int) -> Tensor:
        """The vectors of ids that point to `rows`, as they will be after the swap."""
        num_columns, num_tables, num_rows, width = self.tables.shape
        hashed = self.helper(ids.to(self.tables.device)).view(len(ids), num_columns, num_tables - 1)
        terms = torch.cat([rows.to(hashed.device).unsqueeze(-1), hashed], dim=-1)  # (n, num_columns, num_tables)
        stacked = stack_rows(terms.flatten(1), num_rows).view(len(ids), embedding_dim // width, -1)
        return gather_sum(self.tables.flatten(0, 2), stacked)


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
        settings: ClusterSettings | None = None,
    ) -> None:
        self.table = table
        self.settings = table.settings if settings is None else settings
        self.source = source
        self.generator = common_generator(generator)
        self.timer = StepTimer()

    @torch.no_grad()
    def stage(self, counts: Tensor | None) -> StagedClustering:
        """All steps but the swap."""
        with clean_interrupts():
            quantized = self.learn(counts)
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

    def learn(self, counts: Tensor | None) -> Quantized:
        """Codebooks and pointers."""
        return self.quantize(counts)

    def quantize(self, counts: Tensor | None) -> Quantized:
        """Codebooks from a sample of the vectors, and the pointers of all ids; the table stays as it is."""
        table, num_learned = self.table, self.table.assignments.num_learned
        quantizer, settings = table.quantizer(self.settings), self.settings
        with self.timer("sample"):
            ids, weights = draw_sample(
                num_learned, quantizer.num_rows, settings, counts=counts, generator=self.generator
            )
        with self.timer("fit"):
            quantizer.fit(Sample(self.source, ids, table.embedding_dim, weights), self.generator)
        with self.timer("assign"):
            pointers = encode_all(quantizer, self.source, num_learned, table.embedding_dim)
        return Quantized(ids, quantizer.codebooks, pointers, quantizer.inertias)

    def _start_helpers(self, quantized: Quantized) -> Learned:
        """New hash functions for the helpers, and their rows at zero unless the table starts them elsewhere."""
        table, shape = self.table, self.table.next_shape
        helper = MultiplyShift(
            shape.num_columns * (shape.num_tables - 1), shape.num_rows, generator=self.generator, device="cpu"
        )
        tables = quantized.codebooks.unsqueeze(1)  # (num_columns, 1, num_rows, width)
        tables = functional.pad(tables, (0, 0, 0, 0, 0, shape.num_tables - 1)).to(table.codebook)
        learned = Learned(quantized.pointers, helper.to(tables.device), tables)
        table.start_helpers(learned, self.source)
        return learned

    def _before(self, ids: Tensor) -> Snapshot:
        table, device = self.table, self.table.codebook.device
        compared = ids[:: self._step_between(ids)]
        vectors = vectors_of(lambda piece: table.embed(piece.to(device)), compared, table.embedding_dim)
        return Snapshot(table.assignments(ids.to(device)).cpu(), vectors)

    def _after(self, learned: Learned, ids: Tensor) -> Snapshot:
        """What the swap will make of the same ids."""
        pointers = learned.pointers.read(ids)
        size, step = piece_size(self.table.embedding_dim), self._step_between(ids)
        pieces = zip(torch.split(ids[::step], size), torch.split(pointers[::step], size), strict=True)
        dim = self.table.embedding_dim
        vectors = torch.cat([learned.vectors(*piece, dim).float() for piece in pieces])
        return Snapshot(pointers, vectors)

    def _step_between(self, ids: Tensor) -> int:
        """How many of the counted ids come from one that is compared to the next."""
        return max(1, len(ids) // max(COMPARED, COMPARED_PER_ROW * self.table.next_shape.num_rows))

    def _event(self, learned: Learned, inertias: tuple[float, ...], before: Snapshot, after: Snapshot) -> ClusterEvent:
        table = self.table
        num_rows = table.next_shape.num_rows
        dead, overfull = count_rows(learned.pointers.blocks(), num_rows)
        order, step = min(2, table.num_columns), self._step_between(before.pointers)
        old, new = before.pointers[::step], after.pointers[::step]
        return ClusterEvent(
            num_ids=table.assignments.num_learned,
            num_rows=num_rows,
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


@dataclass(frozen=True)
class Snapshot:
    """What some ids look like before or after the swap."""

    pointers: Tensor  # (n, num_columns) int64
    vectors: Tensor  # float32, (m, embedding_dim): of every so many of them


def _transfer(table: ClusteredEmbedding, before: Snapshot, after: Snapshot) -> RowTransfer:
    """Which row of the codebook each clustered row took its ids from, counted on the sample."""
    pairs = [contingency(*pointers) for pointers in zip(before.pointers.T, after.pointers.T, strict=True)]
    old, new = table.codebook_shape.row_numbers(), table.next_shape.row_numbers()
    return RowTransfer(
        parameter=table.codebook,
        new_rows=torch.cat([numbers[rows] for numbers, (_, rows, _) in zip(new[:, 0], pairs, strict=True)]),
        old_rows=torch.cat([numbers[rows] for numbers, (rows, _, _) in zip(old[:, 0], pairs, strict=True)]),
        counts=torch.cat([count for _, _, count in pairs]),
        restarted=new[:, 1:].flatten(),
        old_restarted=old[:, 1:].flatten(),
        num_old_rows=old.numel(),
    )
