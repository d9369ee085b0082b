"""The gradients of distinct ids, summed over a batch, for all tables of a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.int8.tables import GOLDEN, NO_ROW, table_at

Array = np.ndarray[Any, Any]

AHEAD = 16  # gradients that are asked for before they are added
EMPTY = -1

pointer, carray, prefetch = memory.pointer, memory.carray, memory.prefetch
read_uint8, read_int32, read_float32 = memory.read_uint8, memory.read_int32, memory.read_float32
put, add, add_scaled, clear, sum_squares = memory.put, memory.add, memory.add_scaled, memory.clear, memory.sum_squares


@compile_loops
def sum_gradients(
    tables: Array, paddings: Array, batches: Array, starts: Array, into: Array, first: Any, last: Any, run: Any
) -> None:
    """Sum the gradients of each id, in the order in which ids first occur, for the tables in `[first, last)`.

    tables: addresses of their records. batches: one record, in which `out` has the gradients of the vectors. starts:
    where the ids of each table begin and end among those that were saved. into: receives a record for each table.
    """
    batch = batches[0]
    for t in range(first, last):
        count = starts[t + 1] - starts[t]
        slots = np.empty(_num_slots(count), np.int32)
        slots[:] = EMPTY
        _sum(table_at(tables[t]), paddings[t], batch, (t, len(tables)), starts[t], count, into[t], slots, run)
        _add_squares(table_at(tables[t]), into[t], run)


@compile_loops
def _num_slots(count: Any) -> Any:
    size = 16
    while size < 2 * count:
        size *= 2
    return size


@compile_loops
def _sum(
    table: Any, padding: Any, batch: Any, place: Any, start: Any, count: Any, into: Any, slots: Array, run: Any
) -> None:
    t, num_tables = place
    ids = carray(pointer(batch.saved_ids + 8 * start), (count,), np.int64)
    rows = carray(pointer(batch.saved_rows + 8 * start), (count,), np.int64)
    distinct = carray(pointer(into.ids), (count,), np.int64)
    own_rows = carray(pointer(into.rows), (count,), np.int64)
    occurrences = carray(pointer(into.occurrences), (count,), np.int64)
    bags = batch.saved_bags + 4 * start if batch.saved_bags else 0
    weights = batch.weights + 4 * start if batch.weights else 0
    width, sums, mask = 4 * table.dim, into.sums, len(slots) - 1
    shift, num_ids = np.uint64(64 - np.int64(np.log2(len(slots)))), 0
    for i in range(count):
        if i + AHEAD < count:
            ahead = np.int64(read_int32(bags + 4 * (i + AHEAD))) if bags else i + AHEAD
            prefetch(batch.out + width * (ahead * num_tables + t))
        given = ids[i]
        if given == padding:
            continue
        slot = np.int64((np.uint64(given) * GOLDEN) >> shift)
        while slots[slot] != EMPTY and distinct[slots[slot]] != given:
            slot = (slot + 1) & mask
        j: Any = np.int64(slots[slot])
        is_new = j == EMPTY
        if is_new:
            j = num_ids
            slots[slot] = np.int32(j)
            num_ids += 1
            distinct[j], own_rows[j], occurrences[j] = given, rows[i], 0
        occurrences[j] += 1
        bag = np.int64(read_int32(bags + 4 * i)) if bags else i
        grad, total = batch.out + width * (bag * num_tables + t), sums + width * j
        for k in range(0, width, 4 * len(run)):
            if weights:
                if is_new:
                    clear(total + k, np.float32(0), run)
                add_scaled(total + k, grad + k, np.float64(read_float32(weights + 4 * i)), np.float32(0), run)
            elif is_new:
                put(total + k, grad + k, np.float32(0), run)
            else:
                add(total + k, grad + k, np.float32(0), run)
    into.num_ids = num_ids


@compile_loops
def _add_squares(table: Any, into: Any, run: Any) -> None:
    """The sums of squares of gradients: of those that the step will move, and of all."""
    ids = carray(pointer(into.ids), (into.num_ids,), np.int64)
    rows = carray(pointer(into.rows), (into.num_ids,), np.int64)
    occurrences = carray(pointer(into.occurrences), (into.num_ids,), np.int64)
    moved, every, one = 0.0, 0.0, np.float32(1)
    for j in range(into.num_ids):
        total = 0.0
        for k in range(0, table.dim, len(run)):
            total += sum_squares(into.sums + 4 * (j * table.dim + k), one, run)
        every += total
        if rows[j] != NO_ROW or table.shares or seen_before(table, ids[j]) + occurrences[j] >= table.needed:
            moved += total
    into.square, into.full_square = moved, every


@compile_loops
def seen_before(table: Any, given: Any) -> Any:
    """How often an id without a row was seen."""
    if not table.seen_bits:
        return 0
    bit = given * table.seen_bits
    return np.int64(read_uint8(table.seen + (bit >> 3)) >> (bit & 7)) & ((1 << table.seen_bits) - 1)
