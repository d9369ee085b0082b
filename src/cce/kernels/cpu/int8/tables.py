"""What compiled loops know of int8 rows: records of sizes and addresses, which Python holds, and which row an id has.

A row is `dim` values and three bytes of state: a second moment, how often it was moved, how often its id occurred.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import find_open, scramble

Array = np.ndarray[Any, Any]

count_bits, pointer, carray, bits_of = memory.count_bits, memory.pointer, memory.carray, memory.bits_of
read_uint64, read_int32 = memory.read_uint64, memory.read_int32

LEVEL, USE, COUNT, STATE_NBYTES = range(4)  # bytes of a row after its values, and how many they are
NO_ROW = 0
DEPTH = 4  # counters of an open id without a row


def _record(integers: str, floats: str = "") -> np.dtype[Any]:
    fields = [(name, np.int64) for name in integers.split()]
    return np.dtype(fields + [(name, np.float64) for name in floats.split()])


# A table. `last_id`: the largest, −1 if any will do; `bits`, `ranks`: of its map, or if there is a `shift` the keys and
# the directory of an open one; `needed`, `chance`: occurrences after which an id has a row, and how likely it then gets
# it; `shares`: whether row 0 is trained; `stamps`: whether rows keep the step at which they were moved last;
# `evicts_above`, `ages_at`, `expires_every`: rows, counted occurrences and steps after which Python must look after it
TABLE = _record(
    "last_id dim width key bits ranks shift num_mapped recent_ids recent_rows recent_size "
    "records capacity most_rows num_rows seen seen_size seen_bits sketch_width needed shares stamps steps "
    "counted demand admitted refused evicted expired evicts_above ages_at expires_every",
    "scale bound chance value_squares value_count",
)
# A batch of ids: `(batch, tables)` with strides in bytes, or bags of ids at `offsets`. What is 0 is not there
BATCH = _record("ids id_stride table_stride size offsets weights out saved_ids saved_rows saved_bags")
# Gradients of the distinct ids of a table; `square` is that of their norm, of ids that a step will move, or of all
GRADIENTS = _record("ids rows occurrences sums num_ids", "square full_square")
# The optimizer's settings and state of a table; `step` and `unit` (of second moments) are addresses
RULE = _record("squares visits step unit", "lr weight_decay beta eps factor")


@compile_loops
def table_at(address: Any) -> Any:
    """The table whose record is at an address."""
    return carray(pointer(address), (1,), TABLE)[0]


# -- which row an id has: by the map of bits and ranks, or by a hash table of recent ids -------------------------------


class Map(NamedTuple):
    """The addresses of bits and ranks, or of keys and their directory, and the recent ids with their rows."""

    bits: int
    ranks: int
    shift: int
    num_keys: int
    recent_ids: Array
    recent_rows: Array


@compile_loops
def map_of(table: Any) -> Any:
    """The map of a table."""
    size = table.recent_size
    ids = carray(pointer(table.recent_ids), (size,), np.int64)
    return Map(
        table.bits,
        table.ranks,
        table.shift,
        table.num_mapped,
        ids,
        carray(pointer(table.recent_rows), (size,), np.int32),
    )


@compile_loops
def find_row(found: Map, given: Any) -> Any:
    """The row of an id: that of the map, or one that it was given since; 0 if it has none."""
    if found.shift:
        row = find_open(found.bits, found.ranks, found.shift, found.num_keys, scramble(np.uint64(given)))
        return row if row or not len(found.recent_ids) else find_recent(found, given)
    word, place = read_uint64(found.bits + 8 * (given >> 6)), np.uint64(given & 63)
    if (word >> place) & np.uint64(1):
        below = word & ((np.uint64(1) << place) - np.uint64(1))
        return np.int64(read_int32(found.ranks + 4 * (given >> 6))) + np.int64(count_bits(below)) + 1
    return find_recent(found, given) if len(found.recent_ids) else np.int64(NO_ROW)


@compile_loops
def find_recent(found: Map, given: Any) -> Any:
    """The row of an id that got one since the map was made; 0 if it did not."""
    return np.int64(found.recent_rows[find_slot(found.recent_ids, found.recent_rows, given)])


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


# -- bytes that stand for second moments and for counts, and random numbers --------------------------------------------

LARGEST = 127
SHIFT = 21  # bits of a float32 that a level of a second moment leaves out: two of its mantissa stay
OFFSET = (127 - 40) << (23 - SHIFT)  # of levels, which begin at 2**-40 and end at 2**24
NUM_GROUPS = 35  # of rows whose counts are in one octave

LEVEL_VALUES = ((np.arange(256, dtype=np.int32) + OFFSET) << SHIFT).view(np.float32)
LEVEL_VALUES[0] = 0
_MANTISSA = np.where(np.arange(256) < 8, np.arange(256), 8 + np.arange(256) % 8)
COUNT_VALUES = (_MANTISSA * 2.0 ** np.maximum(np.arange(256) // 8 - 1, 0)).astype(np.float64)
GROUPS = np.floor(np.log2(np.maximum(COUNT_VALUES, 1))).astype(np.int64)
_SHARES = 0.5 ** np.arange(64)  # of an octave: powers of two, so that a product is as exact as a quotient

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_16, _40, _MASK_24 = np.uint64(16), np.uint64(40), np.uint64(0xFF_FFFF)
_FRACTION = np.float32(2.0**-24)


@compile_loops
def uniform_at(key: Any, place: Any) -> Any:
    """See `indexing.uniform`."""
    return np.float32(scramble(place * GOLDEN + key) >> _40) * _FRACTION


@compile_loops
def uniform_pair(key: Any, place: Any) -> Any:
    """See `indexing.uniform_pair`."""
    bits = scramble(place * GOLDEN + key)
    return np.float32(bits >> _40) * _FRACTION, np.float32((bits >> _16) & _MASK_24) * _FRACTION


@compile_loops
def encode_level(square: Any, noise: Any) -> Any:
    """The byte of a second moment; it is rounded up if `noise`, in [0, 1), reaches beyond the next."""
    bits = np.int64(bits_of(square)) + np.int64(noise * np.float32(1 << SHIFT))
    level: Any = min(max((bits >> SHIFT) - OFFSET, 1), 255)
    return np.uint8(level)


@compile_loops
def encode_count(count: Any, noise: Any) -> Any:
    """The byte of a count: exact below 16, beyond it one of eight in an octave, rounded at random."""
    if count < 16:
        return np.uint8(count)
    octave = (bits_of(count) >> 52) - 1026
    mantissa = np.int64(np.floor(count * _SHARES[octave] + np.float64(noise)))
    return np.uint8(min(octave * 8 + mantissa, 255))
