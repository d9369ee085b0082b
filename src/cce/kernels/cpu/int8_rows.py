"""Rows of int8 times a scale for each slot and column, summed: lookups of frozen tables. Nothing has a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import compile_loops, is_compiled, memory, scratch
from cce.kernels.cpu.gradients import PARALLEL_SLOTS
from cce.kernels.cpu.lookup import name_wrong_id, run_shares
from cce.kernels.cpu.rows import BLOCK, fill_rows

if TYPE_CHECKING:
    from cce.kernels.cpu.plan import LaunchPlan

Array = np.ndarray[Any, Any]

read_uint8, read_float32, write_float32 = memory.read_uint8, memory.read_float32, memory.write_float32


class Int8Launch(NamedTuple):
    """A plan with the rows and scales that it is run on."""

    plan: LaunchPlan
    groups: list[tuple[tuple[int, ...], Array]]  # a tuple as long as a row, and the features with such rows


def bind_int8(plan: LaunchPlan, codebooks: Sequence[Tensor], scales: Sequence[Tensor]) -> Int8Launch:
    """The plan for codebooks of int8 `(num_rows, width)` and scales `(num_slots, width)`, contiguous and on the CPU."""
    groups: dict[int, list[Array]] = {}
    for line in (line for _, features in plan.groups for line in features):
        own, place = line.copy(), line["place"]
        own["codebook"], own["scales"] = codebooks[place].data_ptr(), scales[place].data_ptr()
        groups.setdefault(int(line["width"]), []).append(own)
    return Int8Launch(plan, [((0,) * width, np.array(lines)) for width, lines in groups.items()])


def look_up_int8(launch: Int8Launch, ids: Tensor, shape: Sequence[int]) -> Tensor:
    """Vectors of float32, in this shape, of ids `(batch, features)`, or `(batch)` of a single feature."""
    plan, batch, id_bytes = launch.plan, ids.shape[0], ids.itemsize
    vectors = torch.empty(shape, dtype=torch.float32, device="cpu")
    source = (ids.data_ptr(), id_bytes, ids.stride(0) * id_bytes, ids.stride(-1) * id_bytes)

    def run(index: int, num_threads: int) -> bool:
        """A range of the batch. Whether all ids were right."""
        work = (batch * index // num_threads, batch * (index + 1) // num_threads)
        rows = scratch("rows", plan.most_slots * BLOCK, np.int32)
        out = (vectors.data_ptr(), 4 * plan.dim)
        return all(_look_up(features, plan.slots, source, *work, rows, *out, run) for run, features in launch.groups)

    if not (run(0, 1) if batch * sum(plan.num_slots) < PARALLEL_SLOTS else run_shares(run)):
        name_wrong_id(plan, ids.view(batch, -1).unbind(1))
    return vectors


def is_int8_ready(launch: Int8Launch) -> bool:
    """Whether the loops are compiled; if not, that begins in the background."""
    rows = np.empty(0, np.int32)
    return all(
        is_compiled(_look_up, (features, launch.plan.slots, (0, 0, 0, 0), 0, 0, rows, 0, 0, run))
        for run, features in launch.groups
    )


@compile_loops
def _look_up(
    features: Array, slots: Array, source: Any, first: Any, last: Any, rows: Array, out: Any, out_stride: Any, run: Any
) -> Any:
    """Vectors of examples `first` to `last` of all features; False if an id is out of range."""
    ids, id_bytes, id_stride, feature_stride = source
    mixed = np.empty((4, BLOCK), np.uint64)
    for begin in range(first, last, BLOCK):  # the vectors of a block of examples stay in the cache
        count = min(BLOCK, last - begin)
        for f in range(len(features)):
            feature = features[f]
            at = ids + begin * id_stride + feature.place * feature_stride
            if not fill_rows(slots, feature, (at, id_bytes, id_stride), 0, count, rows, 0, mixed):
                return False
            _sum(feature, rows, count, out + begin * out_stride + 4 * feature.out, out_stride, run)
    return True


@compile_loops
def _sum(feature: Any, rows: Array, count: Any, into: Any, stride: Any, run: Any) -> None:
    """Sums over the terms of each column, in the order of the slots; zeros where the first row is −1."""
    values, scales, terms, width = feature.codebook, feature.scales, feature.terms, len(run)
    for i in range(count):
        here = into + i * stride
        if rows[i] < 0:
            for k in range(feature.columns * width):
                write_float32(here + 4 * k, np.float32(0))
            continue
        at, scale = np.uint64(i), scales
        for _ in range(feature.columns):
            for term in range(terms):
                row = values + np.int64(rows[at]) * width
                for k in range(width):
                    value = np.float32(np.int8(read_uint8(row + k))) * read_float32(scale + 4 * k)
                    write_float32(here + 4 * k, value if term == 0 else read_float32(here + 4 * k) + value)
                at += np.uint64(BLOCK)
                scale += 4 * width
            here += 4 * width
