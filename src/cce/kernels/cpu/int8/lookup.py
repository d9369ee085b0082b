"""Ids in, vectors of int8 rows out, for all tables of a call: an id is a bag of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.int8.tables import find_recent, find_row, map_of, table_at
from cce.kernels.cpu.rows import bucket_of, find_key, guess, scramble

Array = np.ndarray[Any, Any]

EXAMPLES = 128  # whose vectors stay in the cache while the tables take turns
AHEAD = 64  # ids whose rows are asked for before they are read
NO_TABLE = -1

read_int64, read_int32, read_float32 = memory.read_int64, memory.read_int32, memory.read_float32
write_int64, write_int32, prefetch = memory.write_int64, memory.write_int32, memory.prefetch
put_codes, add_codes, clear = memory.put_codes, memory.add_codes, memory.clear


@compile_loops
def look_up(tables: Array, paddings: Array, batches: Array, first: Any, last: Any, run: Any) -> Any:
    """Vectors `(batch, tables, dim)` of the examples in `[first, last)`: −1, or which table has a wrong id.

    tables: addresses of their records. batches: one record. run: as many zeros as values are handled together. Vectors
    of bags are added to `out`.
    """
    batch, found = batches[0], np.empty((3, AHEAD), np.int64)
    for begin in range(first, last, EXAMPLES):
        end = min(begin + EXAMPLES, last)
        for t in range(len(tables)):
            low, high, at = begin, end, batch.ids + t * batch.table_stride
            if batch.offsets:
                low = read_int64(batch.offsets + 8 * (t * batch.size + begin))
                high = read_int64(batch.offsets + 8 * (t * batch.size + end))
                at = batch.ids
            for chunk in range(low, high, AHEAD):
                count = min(AHEAD, high - chunk)
                if not _find(table_at(tables[t]), at + chunk * batch.id_stride, batch.id_stride, count, found):
                    return t
                if batch.offsets:
                    _add_bags(
                        table_at(tables[t]), paddings[t], batch, (t, len(tables)), begin, chunk, count, found, run
                    )
                else:
                    _put_each(table_at(tables[t]), paddings[t], batch, len(tables), t, chunk, count, found, run)
    return NO_TABLE


@compile_loops
def _find(table: Any, at: Any, stride: Any, count: Any, found: Array) -> Any:
    """The ids at an address and their rows, which are asked for; False if an id is out of range."""
    bits, ranks, records, width = table.bits, table.ranks, table.records, table.width
    rows, last = map_of(table), np.uint64(table.last_id)
    if rows.shift:
        _find_open(rows, at, stride, count, found, records, width)
        return True
    for i in range(count):
        given = read_int64(at + i * stride)
        if np.uint64(given) > last:
            return False
        found[0, i] = given
        prefetch(bits + 8 * (given >> 6))
        prefetch(ranks + 4 * (given >> 6))
    for i in range(count):
        row = find_row(rows, found[0, i])
        found[1, i] = row
        prefetch(records + row * width)
    return True


@compile_loops
def _find_open(rows: Any, at: Any, stride: Any, count: Any, found: Array, records: Any, width: Any) -> None:
    """The same for an open table, in which any id is right."""
    for i in range(count):
        given = read_int64(at + i * stride)
        key = scramble(np.uint64(given))
        found[0, i], found[2, i] = given, np.int64(key)
        found[1, i] = rows.ranks + 4 * bucket_of(key, rows.shift)
        prefetch(found[1, i])
    for i in range(count):
        found[1, i] = guess(found[1, i], rows.shift, np.uint64(found[2, i]))
        prefetch(rows.bits + 8 * found[1, i])
    for i in range(count):
        row = find_key(rows.bits, found[1, i], rows.num_keys, found[2, i])
        if not row and len(rows.recent_ids):
            row = find_recent(rows, found[0, i])
        found[1, i] = row
        prefetch(records + row * width)


@compile_loops
def _put_each(
    table: Any, padding: Any, batch: Any, num_tables: Any, t: Any, chunk: Any, count: Any, found: Array, run: Any
) -> None:
    """Vectors of ids of their own."""
    dim, scale, records, width = table.dim, np.float32(table.scale), table.records, table.width
    for i in range(count):
        into = batch.out + 4 * dim * ((chunk + i) * num_tables + t)
        for k in range(0, dim, len(run)):
            if found[0, i] == padding:
                clear(into + 4 * k, np.float32(0), run)
            else:
                put_codes(into + 4 * k, records + found[1, i] * width + k, scale, run)
    if batch.saved_ids:
        start = 8 * (t * batch.size + chunk)
        for i in range(count):
            write_int64(batch.saved_ids + start + 8 * i, found[0, i])
            write_int64(batch.saved_rows + start + 8 * i, found[1, i])


@compile_loops
def _add_bags(
    table: Any, padding: Any, batch: Any, place: Any, begin: Any, chunk: Any, count: Any, found: Array, run: Any
) -> None:
    """Vectors of ids in bags from `begin` on, added to those of their bags. `place`: of the table, among how many."""
    t, num_tables = place
    dim, scale, records, width = table.dim, np.float32(table.scale), table.records, table.width
    bag, ends = begin, batch.offsets + 8 * (t * batch.size + 1)
    for i in range(count):
        while read_int64(ends + 8 * bag) <= chunk + i:
            bag += 1
        weight = read_float32(batch.weights + 4 * (chunk + i)) if batch.weights else np.float32(1)
        into = batch.out + 4 * dim * (bag * num_tables + t)
        if found[0, i] != padding:
            for k in range(0, dim, len(run)):
                add_codes(into + 4 * k, records + found[1, i] * width + k, scale, weight, run)
        if batch.saved_ids:
            write_int64(batch.saved_ids + 8 * (chunk + i), found[0, i])
            write_int64(batch.saved_rows + 8 * (chunk + i), found[1, i])
            write_int32(batch.saved_bags + 4 * (chunk + i), np.int32(bag))
