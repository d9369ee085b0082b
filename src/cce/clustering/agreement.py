"""Statistics of one clustering and of two compared: churn, entropies, dead rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

LARGEST = 2**31  # codes beyond it are numbered again before they are multiplied


def column_entropies(pointers: Tensor, max_order: int) -> tuple[float, ...]:
    """`H_1 … H_max_order` in nats of pointers `(n, num_columns)`.

    `H_j` is the smallest entropy, over all choices of j columns, of the distribution of their pointers: the paper's
    "Table Collapse". A low `H_1` means that a column uses few of its rows; an `H_2` near it, that two columns agree.
    """
    columns = pointers.long().T.contiguous().unbind()
    orders = range(1, max_order + 1)
    return tuple(min(_joint_entropy(*chosen) for chosen in combinations(columns, order)) for order in orders)


def churn(before: Tensor, after: Tensor) -> float:
    """The share of pointers that changed, `(n, num_columns)` before and after, whatever the rows are called.

    Rows are matched greedily, the pair with the most ids in common first.
    """
    if before.numel() == 0:
        return 0.0
    kept = sum(_matched(old, new) for old, new in zip(before.unbind(1), after.unbind(1), strict=True))
    return 1 - kept / before.numel()


def count_dead(blocks: Iterable[Tensor], num_rows: int) -> int:
    """How many of the rows of all columns no id points to; pointers come in blocks `(n, num_columns)`."""
    counts = torch.zeros(1, num_rows, dtype=torch.int64, device="cpu")
    for block in blocks:
        columns = [torch.bincount(column.long(), minlength=num_rows) for column in block.unbind(1)]
        counts = counts + torch.stack(columns)  # (num_columns, num_rows)
    return int((counts == 0).sum())


def contingency(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every pair of rows that some id `(n)` went between: old rows, new rows, and how many ids did."""
    scale = int(after.max()) + 1 if len(after) else 1
    codes, counts = _tally(before * scale + after)
    return torch.div(codes, scale, rounding_mode="floor"), codes % scale, counts


def _joint_entropy(code: Tensor, *others: Tensor) -> float:
    """The entropy of the joint distribution of columns `(n)`."""
    for column in others:
        scale = int(column.max()) + 1
        if (int(code.max()) + 1) * scale > LARGEST:
            code = torch.unique(code, return_inverse=True)[1]
        code = code * scale + column
    counts = _tally(code)[1].double()
    shares = counts / counts.sum()
    return float(-(shares * shares.log()).sum()) + 0.0  # no negative zero


def _tally(codes: Tensor) -> tuple[Tensor, Tensor]:
    """The codes that occur, rising, and how often; numpy sorts several times as fast as `torch.unique`."""
    values, counts = np.unique(codes.numpy(), return_counts=True)
    return torch.from_numpy(values), torch.from_numpy(counts)


def _matched(before: Tensor, after: Tensor) -> int:
    """Ids that stay together under the greedy matching: a pair counts if neither of its rows was matched before."""
    pairs = contingency(before, after)
    order = torch.argsort(pairs[2], stable=True).flip(0)
    kept, old_rows, new_rows = 0, set(), set()
    for old, new, count in zip(*(part[order].tolist() for part in pairs), strict=True):
        if old not in old_rows and new not in new_rows:
            kept += count
            old_rows.add(old)
            new_rows.add(new)
    return kept
