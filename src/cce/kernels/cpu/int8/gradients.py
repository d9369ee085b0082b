"""The gradients of distinct ids, summed over a batch, for all tables of a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.int8.tables import DEPTH, GOLDEN, NO_ROW, table_at, uniform_at
from cce.kernels.cpu.rows import scramble

Array = np.ndarray[Any, Any]

AHEAD = 16  # gradients that are asked for before they are added
EMPTY = -1
_LOW, _32 = np.uint64(0xFFFF_FFFF), np.uint64(32)

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
        is_moved = rows[j] != NO_ROW or table.shares
        if not is_moved and table.num_rows < table.most_rows:
            is_moved = is_wanted(table, ids[j], seen_before(table, ids[j]), occurrences[j], table.steps + 1)
        if is_moved:
            moved += total
    into.square, into.full_square = moved, every


@compile_loops
def seen_before(table: Any, given: Any) -> Any:
    """How often an id without a row was seen: see `embeddings.admission`."""
    if table.sketch_width:
        low, high = sketch_hash(table, given)
        least = np.int64(255)
        for depth in range(DEPTH):
            least = min(least, np.int64(read_uint8(table.seen + sketch_cell(table, low, high, depth))))
        return least
    if not table.seen_bits:
        return np.int64(0)
    bit = given * table.seen_bits
    return np.int64(read_uint8(table.seen + (bit >> 3)) >> (bit & 7)) & ((1 << table.seen_bits) - 1)


@compile_loops
def sketch_hash(table: Any, given: Any) -> Any:
    """The halves of the hash that names the counters of an id."""
    bits = scramble(np.uint64(given) * GOLDEN + scramble(np.uint64(table.key) + np.uint64(3) * GOLDEN))
    return bits & _LOW, bits >> _32


@compile_loops
def sketch_cell(table: Any, low: Any, high: Any, depth: Any) -> Any:
    """One of the counters of an id."""
    mixed = (low + np.uint64(depth) * high) & _LOW
    return np.int64((mixed * np.uint64(table.sketch_width)) >> _32) + depth * table.sketch_width


@compile_loops
def is_wanted(table: Any, given: Any, before: Any, occurrences: Any, step: Any) -> Any:
    """Whether a step gives a row to an id without one, if there is room."""
    if before + occurrences < table.needed:
        return False
    if table.chance >= 1:
        return True
    key = scramble(np.uint64(table.key) + np.uint64(2 * step + 3) * GOLDEN)
    return np.float64(uniform_at(key, np.uint64(given))) < table.chance * occurrences
