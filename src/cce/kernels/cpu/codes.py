"""Rows of small integers times a scale, in a compiled loop: ids in, rows and vectors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cce.compiled import compile_loops, parallel_for
from cce.kernels.cpu.rows import hash_one

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, Any]

PARALLEL_VALUES = 1 << 18  # below so many, handing work to threads costs more than it saves
RANGES_PER_THREAD = 4


class CodeRows(NamedTuple):
    """A table of codes: which row an id has, and which scale a row."""

    codes: Tensor  # (num_rows, width), integers
    scale: Tensor  # float32 (1 or groups, 1 or width)
    starts: list[int]  # the first row of each group
    num_learned: int  # ids from here on have no row of their own
    seeds: Tensor | None  # of the hash function that gives them a row


def look_up_codes(ids: Tensor, table: CodeRows) -> tuple[Tensor, Tensor]:
    """Rows `(n)` and vectors `(n, width)` of checked int64 ids `(n)`, all on the CPU; nothing has a gradient."""
    num_rows, width = table.codes.shape
    rows, vectors = torch.empty_like(ids), torch.empty(len(ids), width)
    seeds = 0 if table.seeds is None else table.seeds.data_ptr()
    arrays = (ids.numpy(), table.codes.numpy(), table.scale.detach().numpy(), np.array(table.starts, np.int64))
    numbers = (table.num_learned, num_rows - table.num_learned, seeds)
    num_threads = torch.get_num_threads() if vectors.numel() >= PARALLEL_VALUES else 1
    num_ranges = 1 if num_threads == 1 else num_threads * RANGES_PER_THREAD
    cuts = [len(ids) * index // num_ranges for index in range(num_ranges + 1)]

    def work(index: int) -> None:
        _look_up(arrays, numbers, rows.numpy(), vectors.numpy(), cuts[index], cuts[index + 1])

    parallel_for(work, num_ranges)
    return rows, vectors


@compile_loops
def _look_up(
    arrays: tuple[Array, Array, Array, Array],
    numbers: tuple[int, int, int],
    rows: Array,
    vectors: Array,
    first: int,
    last: int,
) -> None:
    ids, codes, scale, starts = arrays
    num_learned, num_shared, seeds = numbers
    group = 0
    for i in range(first, last):
        row = ids[i]
        if row >= num_learned:
            row = num_learned + np.int64(hash_one(np.uint64(row), seeds, num_shared))
        rows[i] = row
        if len(scale) > 1:
            group = np.searchsorted(starts, row, side="right") - 1
        if scale.shape[1] == 1:
            for k in range(codes.shape[1]):
                vectors[i, k] = np.float32(codes[row, k]) * scale[group, 0]
        else:
            for k in range(codes.shape[1]):
                vectors[i, k] = np.float32(codes[row, k]) * scale[group, k]
