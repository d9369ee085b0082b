"""Ids that come again and again in a batch, composed once.

The ids that `prepare` gives out are numbered by falling count, so the frequent ones are small. A chunk of a batch in
which small ids come often is looked up in three steps: list every small id once and all others as they come; compose
the vectors of the list; copy them to the batch. Backward goes the other way: gradients of the same id are summed first,
and only the sums go to the rows. Chunks are cut at the same places whatever the number of threads, so the order of sums
does not depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import read_id

Array = np.ndarray[Any, Any]

CHUNK = 4096  # ids that are deduplicated together: a multiple of BLOCK
SMALL_IDS = 4096  # ids below are deduplicated
NUM_PROBED = 256  # ids of a chunk that decide whether it is worth the while
MOST_LISTED = 0.75  # of a chunk, or it is looked up id by id

put, add, clear = memory.put, memory.add, memory.clear


@compile_loops
def deduplicate_ids(
    ids: Any, id_bytes: Any, stride: Any, count: Any, listed: Array, names: Array, first: Any, seen: Array
) -> Any:
    """List the ids of a chunk in `listed`; id `i` is entry `names[first + i]`. 0 if it is not worth it."""
    if count < NUM_PROBED:
        return 0
    small = np.uint64(SMALL_IDS)
    num_small = 0
    for i in range(NUM_PROBED):
        num_small += read_id(ids + i * stride, id_bytes) < small
    if 2 * num_small < NUM_PROBED:
        return 0
    seen[:] = 0
    to = np.uint64(first)
    size = np.uint64(0)
    for i in range(np.uint64(count)):
        x = read_id(ids + np.int64(i) * stride, id_bytes)
        entry = size
        if x < small:
            entry = np.uint64(seen[x])
            if entry == 0:  # entries are noted from 1 on
                size += np.uint64(1)
                listed[size - np.uint64(1)] = x
                seen[x] = np.uint16(size)
                entry = size
            entry -= np.uint64(1)
        else:
            listed[size] = x
            size += np.uint64(1)
        names[to + i] = np.uint16(entry)
    return np.int64(size) if size < MOST_LISTED * count else 0


@compile_loops
def copy_out(
    vectors: Any, dim: Any, names: Array, first: Any, count: Any, into: Any, stride: Any, item: Any, kind: Any, run: Any
) -> None:
    """Copy the vector of every id, of `dim` floats of `item` bytes, to the batch. `run` divides `dim`."""
    length = len(run) * item
    for i in range(np.uint64(count)):
        source = vectors + np.int64(names[np.uint64(first) + i]) * (dim * item)
        to = into + np.int64(i) * stride
        for k in range(dim // len(run)):
            put(to + k * length, source + k * length, kind, run)


@compile_loops
def sum_up(
    grads: Any,
    stride: Any,
    names: Array,
    first: Any,
    count: Any,
    into: Any,
    dim: Any,
    num_listed: Any,
    item: Any,
    kind: Any,
    run: Any,
) -> None:
    """Add the gradient of every id to that of its entry in the list, which starts at zero."""
    length = len(run) * item
    for k in range(num_listed * (dim // len(run))):
        clear(into + k * length, kind, run)
    for i in range(np.uint64(count)):
        source = grads + np.int64(i) * stride
        to = into + np.int64(names[np.uint64(first) + i]) * (dim * item)
        for k in range(dim // len(run)):
            add(to + k * length, source + k * length, kind, run)
