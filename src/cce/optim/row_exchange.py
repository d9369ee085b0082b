"""Gradients of int8 rows over several processes: their mean, as DistributedDataParallel has it for parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from cce.distributed import current_ranks, gather_rows
from cce.embeddings import Int8Rows, Pending, merge_pending


def mean_over_processes(tables: list[Int8Rows], taken: list[Pending | None]) -> list[Pending | None]:
    """The mean of the gradients of all processes; its `norm` is the mean of theirs, which DDP gives to anchors."""
    ranks = current_ranks()
    found = [_nothing(table) if pending is None else pending for table, pending in zip(tables, taken, strict=True)]
    facts = torch.tensor([[each.count, each.norm, each.is_finite] for each in found], dtype=torch.float64)
    integers = torch.cat([torch.stack([each.ids, each.occurrences], dim=1) for each in found]).cpu()
    sums = torch.cat([each.sums.flatten() for each in found]).cpu()
    everywhere = gather_rows(facts.unsqueeze(0), ranks)  # (ranks, tables, 3)
    parts = _cut(tables, everywhere, gather_rows(integers, ranks), gather_rows(sums, ranks) / ranks.world_size)
    merged: list[Pending | None] = []
    for index, table in enumerate(tables):
        whole = merge_pending(table, [of_rank[index] for of_rank in parts])
        whole.norm = float(everywhere[:, index, 1].mean())
        whole.is_finite = bool(everywhere[:, index, 2].all())
        merged.append(whole if whole.count else None)
    return merged


def _nothing(table: Int8Rows) -> Pending:
    return _received(table, torch.empty(0, 2, dtype=torch.int64), torch.empty(0))


def _cut(tables: list[Int8Rows], facts: Tensor, integers: Tensor, sums: Tensor) -> list[list[Pending]]:
    """What all processes have sent, by process and table."""
    counts = facts[:, :, 0].long()
    widths = torch.tensor([table.dim for table in tables])
    ids = iter(torch.split(integers, counts.flatten().tolist()))
    values = iter(torch.split(sums, (counts * widths).flatten().tolist()))
    return [[_received(table, next(ids), next(values)) for table in tables] for _ in counts]


def _received(table: Int8Rows, integers: Tensor, sums: Tensor) -> Pending:
    """Gradients of ids and occurrences `(n, 2)`, whose rows nobody has looked up."""
    device = table.records.device
    ids, occurrences = integers.to(device).unbind(1)
    return Pending.of(ids, torch.zeros_like(ids), occurrences, sums.view(-1, table.dim).to(device), table.live.moves)
