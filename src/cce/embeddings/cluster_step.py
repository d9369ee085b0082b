"""One clustering of a CCE table, in five steps: sample, fit, assign, measure what changes, and swap.

Everything before the swap is computed from the table as it was, and leaves it so: an error or an interruption on the
way changes nothing. The table that CCE stands for, as tall as the vocabulary, is never in memory: vectors are computed
for the sample and then block by block.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from cce.clustering import (
    ClusterSettings,
    Quantizer,
    Sample,
    Source,
    churn,
    column_entropies,
    contingency,
    count_dead,
    draw_sample,
    encode_all,
)
from cce.embeddings.clusterable import ClusterEvent, RowTransfer, StagedClustering, clean_interrupts
from cce.indexing import MultiplyShift, PointerStore, common_generator, stack_rows
from cce.kernels import gather_sum

if TYPE_CHECKING:
    from cce.embeddings.clustered import ClusteredEmbedding

MAX_COUNTED = 1 << 22  # values of sampled vectors whose ids are counted: which rows took them from which
COMPARED_PER_ROW = 16  # of those, ids for each row of a table on which change is measured
COMPARED = 1 << 12  # at least


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


def learn_pointers(
    quantizer: Quantizer,
    source: Source,
    size: tuple[int, int],
    settings: ClusterSettings,
    generator: torch.Generator | None,
    counts: Tensor | None = None,
) -> tuple[Tensor, PointerStore]:
    """Fit codebooks to a sample of ids; those ids, and the pointers of all. `size` is of `source`: ids and values."""
    ids, weights = draw_sample(size[0], quantizer.num_rows, settings, counts=counts, generator=generator)
    quantizer.fit(Sample(source, ids, size[1], weights), generator)
    return ids, encode_all(quantizer, source, *size)


@torch.no_grad()
def stage_clustering(
    table: ClusteredEmbedding, source: Source, counts: Tensor | None, generator: torch.Generator | None
) -> StagedClustering:
    """Algorithm 3, "Cluster", except the swap; vectors come from `source`, which is the table itself or another."""
    generator, started = common_generator(generator), time.perf_counter()
    quantizer = table.quantizer(table.settings)
    with clean_interrupts():
        size = table.num_embeddings, table.embedding_dim
        ids, pointers = learn_pointers(quantizer, source, size, table.settings, generator, counts)
    learned = _learned(table, pointers, quantizer.codebooks, generator)
    table.start_helpers(learned, source)
    counted = ids[:: 1 + len(ids) * table.embedding_dim // MAX_COUNTED]
    event = _event(table, learned, counted, quantizer.inertias, started)
    return StagedClustering(event, lambda: table.swap(learned))


def _learned(
    table: ClusteredEmbedding, pointers: PointerStore, codebooks: Tensor, generator: torch.Generator | None
) -> Learned:
    """The rows that were found, beside new hash functions for the helpers and their rows at zero."""
    shape = table.next_shape
    num_helpers = shape.num_tables - 1
    helper = MultiplyShift(shape.num_columns * num_helpers, shape.num_rows, generator=generator, device="cpu")
    tables = functional.pad(codebooks.unsqueeze(1), (0, 0, 0, 0, 0, num_helpers)).to(table.codebook)
    return Learned(pointers, helper.to(tables.device), tables)


def _event(
    table: ClusteredEmbedding, learned: Learned, counted: Tensor, inertias: tuple[float, ...], started: float
) -> ClusterEvent:
    num_rows = table.next_shape.num_rows
    before, after = table.assignments(counted.to(table.codebook.device)).cpu(), learned.pointers.read(counted)
    step = max(1, len(counted) // max(COMPARED, COMPARED_PER_ROW * num_rows))
    return ClusterEvent(
        num_ids=table.num_embeddings,
        num_rows=num_rows,
        seconds=time.perf_counter() - started,
        inertias=inertias,
        churn=churn(before[::step], after[::step]),
        dead_rows=count_dead(learned.pointers.blocks(), num_rows),
        entropies=column_entropies(after[::step], min(2, table.num_columns)),
        transfer=_transfer(table, before, after),
    )


def _transfer(table: ClusteredEmbedding, before: Tensor, after: Tensor) -> RowTransfer:
    """Which row of the codebook each clustered row took its ids from, counted on the sample."""
    pairs = [contingency(*pointers) for pointers in zip(before.T, after.T, strict=True)]
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
