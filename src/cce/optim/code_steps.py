"""Steps of `PointerDescent` on the codes of one table: plain torch, and compiled loops that give the same bits."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import parallel_for
from cce.embeddings import HEADROOM
from cce.indexing import blocks, group_of
from cce.optim import code_loops as loops
from cce.optim.fused import available
from cce.optim.stochastic_rounding import uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.embeddings import QuantizedEmbedding

BLOCK = 1 << 16  # rows of a table at a time
PARALLEL = 1 << 17  # values below which threads cost more than they save
RANGES_PER_THREAD = 4
MOST_SAMPLED = 4096  # rows of a group from which its root mean square is known
VISITED_HEADROOM = 6  # the same as HEADROOM, where the mean is over visits rather than rows
MAY_MOVE = 1.25  # by which a scale may be off before codes are rounded again


class RowSums(NamedTuple):
    """Gradients of a batch, summed by row."""

    rows: Tensor  # (n), rising
    groups: Tensor  # (n)
    sums: Tensor  # (n, width), float32
    squares: Tensor  # (groups, width), float64: of the sums, added up over the rows of a group


# -- sums --------------------------------------------------------------------------------------------------------------


def sum_rows(rows: Tensor, values: Tensor, table: QuantizedEmbedding) -> RowSums:
    """Gradients `values` of `rows`, in which a row may occur several times; a row of −1 counts for nothing."""
    in_loops = available() and rows.is_cpu
    return (_sum_in_loops if in_loops else _sum_plain)(rows, values.float(), table)


def _sum_plain(rows: Tensor, values: Tensor, table: QuantizedEmbedding) -> RowSums:
    starts = table.group_starts
    rows, values = rows[rows >= 0], values[rows >= 0]
    distinct, inverse = rows.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    sums = values.new_zeros(len(distinct), values.shape[1]).index_add_(0, inverse, values)
    groups = group_of(distinct, starts)
    squares = torch.zeros(len(starts), values.shape[1], dtype=torch.float64, device=values.device)
    return RowSums(distinct, groups, sums, squares.index_add_(0, groups, sums.double().square()))


def _sum_in_loops(rows: Tensor, values: Tensor, table: QuantizedEmbedding) -> RowSums:
    starts, keys = np.array(table.group_starts, np.int64), rows.contiguous().numpy()
    distinct, groups, order = (torch.empty_like(rows) for _ in range(3))
    sums = torch.empty(values.shape)
    squares = torch.zeros(len(starts), values.shape[1], dtype=torch.float64)
    listed = loops.sort_rows(keys, len(table.codes.values), order.numpy(), distinct.numpy())
    into = distinct.numpy(), groups.numpy(), sums.numpy()
    count = loops.sum_rows(keys, order.numpy()[:listed], values.contiguous().numpy(), starts, into, squares.numpy())
    return RowSums(distinct[:count], groups[:count], sums[:count], squares)


# -- codes -------------------------------------------------------------------------------------------------------------


def move_codes(table: QuantizedEmbedding, summed: RowSums, keep: Tensor, gain: Tensor, key: int) -> None:
    """`code = round(keep · code - gain · sum)` for the rows of a batch; `keep`, `gain`: float32 `(groups, width)`."""
    in_loops = available() and table.codes.values.is_cpu
    (_move_in_loops if in_loops else _move_plain)(table, summed, keep, gain, key)


def _move_plain(table: QuantizedEmbedding, summed: RowSums, keep: Tensor, gain: Tensor, key: int) -> None:
    codes, (rows, groups, sums, _) = table.codes.values, summed
    moved = keep[groups] * codes[rows].float() - gain[groups] * sums
    codes[rows] = _round(moved, rows, key, table.codes.largest).to(codes.dtype)


def _move_in_loops(table: QuantizedEmbedding, summed: RowSums, keep: Tensor, gain: Tensor, key: int) -> None:
    arrays = summed.rows.numpy(), summed.groups.numpy(), summed.sums.numpy()
    numbers = np.uint64(key % 2**64), np.float32(table.codes.largest)
    step = partial(loops.move_codes, table.codes.values.numpy(), arrays, keep.numpy(), gain.numpy(), *numbers)
    in_ranges(step, *summed.sums.shape)


def in_ranges(step: Callable[[int, int], None], num_rows: int, width: int) -> None:
    """Take a step on ranges of rows, on all threads if there are values enough."""
    num_threads = torch.get_num_threads() if num_rows * width >= PARALLEL else 1
    num_ranges = 1 if num_threads == 1 else num_threads * RANGES_PER_THREAD
    cuts = [num_rows * index // num_ranges for index in range(num_ranges + 1)]
    parallel_for(lambda index: step(cuts[index], cuts[index + 1]), num_ranges)


def _round(values: Tensor, rows: Tensor, key: int, largest: int) -> Tensor:
    """Stochastic rounding of the values `(n, width)` of rows `(n)`."""
    width = values.shape[1]
    places = rows.unsqueeze(1) * width + torch.arange(width, device=rows.device)
    return (values + uniform(key, places)).floor_().clamp_(-largest, largest)


# -- scales ------------------------------------------------------------------------------------------------------------


def refit_scales(table: QuantizedEmbedding, key: int, weights: Tensor | None = None) -> bool:
    """Fit the scales to the root mean square of the values, and round codes again whose scale has moved far.

    weights: of each group `(groups)` in that mean; by default the number of its rows. Returns whether any has moved.
    """
    scale = table.scale.detach()
    headroom = HEADROOM if weights is None else VISITED_HEADROOM
    fitted = headroom / table.codes.largest * _root_mean_squares(table, weights).to(scale.device) * scale.double()
    ratio = fitted / scale.double()
    moved = (ratio > MAY_MOVE) | ((ratio < 1 / MAY_MOVE) & (ratio > 0))
    if not bool(moved.any()):
        return False
    after = torch.where(moved, fitted.to(scale.dtype), scale)
    factor = torch.where(moved, scale.float() / after.float(), 1.0)
    in_loops = available() and table.codes.values.is_cpu
    (_rescale_in_loops if in_loops else _rescale_plain)(table, factor, key)
    scale.copy_(after)
    return True


def _rescale_plain(table: QuantizedEmbedding, factor: Tensor, key: int) -> None:
    codes, starts = table.codes.values, table.group_starts
    for block in blocks(len(codes), BLOCK):
        rows = block.to(codes.device)
        own = factor[group_of(rows, starts)] if table.scale_by == "group" else factor
        codes[rows] = _round(codes[rows].float() * own, rows, key, table.codes.largest).to(codes.dtype)


def _rescale_in_loops(table: QuantizedEmbedding, factor: Tensor, key: int) -> None:
    arrays = table.codes.values.numpy(), np.array(table.group_starts, np.int64), factor.numpy()
    in_ranges(
        partial(loops.rescale_codes, *arrays, np.uint64(key % 2**64), np.float32(table.codes.largest)),
        *table.codes.values.shape,
    )


def _root_mean_squares(table: QuantizedEmbedding, weights: Tensor | None) -> Tensor:
    """Of the codes that have a scale in common, in the shape of the scales; of large groups by a sample."""
    codes, starts = table.codes.values, [*table.group_starts, len(table.codes.values)]
    means, sizes = [], []
    for first, last in pairwise(starts):
        sample = codes[first : last : -(-(last - first) // MOST_SAMPLED)].long()
        means.append(sample.square().sum(0).double() / len(sample))  # a sum of integers is exact in any order
        sizes.append(last - first)
    if table.scale_by == "group":
        return torch.stack(means).mean(1, keepdim=True).sqrt()
    if weights is None:
        weights = torch.tensor(sizes)
    weights = weights.to(codes.device, torch.float64).unsqueeze(1)
    columns = (torch.stack(means) * weights).sum(0, keepdim=True) / weights.sum()
    return (columns if table.scale_by == "column" else columns.mean(1, keepdim=True)).sqrt()
