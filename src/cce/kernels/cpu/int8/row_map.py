"""Which row an id has, in compiled loops: by the map of bits and ranks, or by a hash table of recent ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.int8.tables import NO_ROW, table_at
from cce.kernels.cpu.rows import scramble

Array = np.ndarray[Any, Any]

count_bits, pointer, carray = memory.count_bits, memory.pointer, memory.carray
read_uint64, read_int32 = memory.read_uint64, memory.read_int32


class Map(NamedTuple):
    """The addresses of bits and ranks, and the recent ids with their rows."""

    bits: int
    ranks: int
    recent_ids: Array
    recent_rows: Array


@compile_loops
def map_of(table: Any) -> Any:
    """The map of a table."""
    size = table.recent_size
    ids = carray(pointer(table.recent_ids), (size,), np.int64)
    return Map(table.bits, table.ranks, ids, carray(pointer(table.recent_rows), (size,), np.int32))


@compile_loops
def find_row(found: Map, given: Any) -> Any:
    """The row of an id: that of the map, or one that it was given since; 0 if it has none."""
    word, place = read_uint64(found.bits + 8 * (given >> 6)), np.uint64(given & 63)
    if (word >> place) & np.uint64(1):
        below = word & ((np.uint64(1) << place) - np.uint64(1))
        return np.int64(read_int32(found.ranks + 4 * (given >> 6))) + np.int64(count_bits(below)) + 1
    if len(found.recent_ids):
        return np.int64(found.recent_rows[find_slot(found.recent_ids, found.recent_rows, given)])
    return NO_ROW


@compile_loops
def find_slot(ids: Array, rows: Array, given: Any) -> Any:
    """Where an id is, or would be put, in a hash table in which row 0 stands for an empty slot."""
    mask = len(ids) - 1
    slot = np.int64(scramble(np.uint64(given)) & np.uint64(mask))
    while ids[slot] != given and rows[slot] != NO_ROW:
        slot = (slot + 1) & mask
    return slot


@compile_loops
def insert_recent(ids: Array, rows: Array, given: Array, first_row: Any) -> None:
    """Note the rows of new ids, one after the other from `first_row` on."""
    for i in range(len(given)):
        slot = find_slot(ids, rows, given[i])
        ids[slot] = given[i]
        rows[slot] = first_row + i


@compile_loops
def find_rows(address: Any, ids: Array, rows: Array) -> None:
    """The row of each id of the table at an address."""
    found = map_of(table_at(address))
    for i in range(len(ids)):
        rows[i] = find_row(found, ids[i])


@compile_loops
def merge(values: Array, moved: Array, before: Array) -> None:
    """Put rows `moved`, which were taken from the end of `values`, where their ids belong.

    before: how many of the other rows come before each of them, rising. In place, from the last row on.
    """
    end = len(values) - len(moved)
    for j in range(len(moved) - 1, -1, -1):
        for row in range(end - 1, before[j] - 1, -1):
            values[row + j + 1] = values[row]
        values[before[j] + j] = moved[j]
        end = before[j]
