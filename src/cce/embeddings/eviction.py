"""Rows that are taken away between two steps, so that a table never has more than it may.

Which rows go depends on counts, steps and ids alone: not on threads, on processes, or on where a row lies. Many go at a
time, so that it costs little. What a row held is cleared before another id gets it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

BLOCK = 1 << 16  # rows at a time
SPREAD = 0x9E3779B1  # of the rows at which ties begin to be broken


def make_space(table: Int8Rows) -> None:
    """Take rows away: those of ids that did not occur for long, and more if the table is nearly full."""
    policy, record = table.policy, table.live.record
    if not table.is_open:
        return
    if policy.time_to_live is not None and table.steps % table.expires_every == 0:
        table.compact()
        expired = table.last_steps[1:] < table.steps - policy.time_to_live
        record["expired"] += int(expired.sum())
        remove_rows(table, expired)
    if table.num_rows <= table.evicts_above or policy.max_rows is None:
        return
    if policy.eviction is None:
        _say_that_it_is_full(table)
        return
    spare = min(max(int(record["demand"][0]), policy.share // 2, 1), policy.most_spare)  # for as many as came last
    if table.num_rows + spare <= table.most_rows:
        return
    table.compact()
    num_gone = min(table.num_rows - 1, table.num_rows + spare - table.most_rows + policy.share)
    before = int(record["evicted"][0]) // policy.max_rows
    record["evicted"] += num_gone
    scores = (table.last_steps if policy.eviction == "lru" else table.counts[: table.num_rows].int())[1:]
    remove_rows(table, _lowest(scores, num_gone, first=table.steps * SPREAD % len(scores)))
    if int(record["evicted"][0]) // policy.max_rows > before:  # as many as there are rows have come and gone
        counts = table.counts[1 : table.num_rows]
        counts.copy_(torch.where(counts < 16, counts >> 1, counts - 8))  # half of what these bytes stand for


def _lowest(scores: Tensor, count: int, *, first: int) -> Tensor:
    """Which are the `count` lowest scores; of equal ones, those that follow the index `first`, and go on from 0."""
    limit = scores.kthvalue(count).values
    below, ties = scores < limit, scores == limit
    order = ties.roll(-first).cumsum(0).roll(first)
    return below | (ties & (order <= count - below.sum()))


def remove_rows(table: Int8Rows, is_gone: Tensor) -> None:
    """Take the rows of some ids away: `is_gone` says so of each row, from 1 on. All rows are in the map."""
    if not bool(is_gone.any()):
        return
    kept, end = (~is_gone).nonzero().squeeze(1) + 1, table.num_rows
    table.map.keep(~is_gone.to(table.map.device))
    for first in range(0, len(kept), BLOCK):  # from the front: no row is written before it was read
        rows = kept[first : first + BLOCK]
        table.records[1 + first : 1 + first + len(rows)] = table.records[rows]
    table.records[1 + len(kept) : end] = 0
    table.live.record["num_rows"] = 1 + len(kept)
    table.has_moved()


def _say_that_it_is_full(table: Int8Rows) -> None:
    if not table.live.was_full:
        table.live.was_full = True
        warnings.warn(
            f"{table.name} is full: its max_rows={table.policy.max_rows:,} rows are taken, and with eviction=None no "
            "new id gets one; such ids read zeros.",
            stacklevel=2,
        )
