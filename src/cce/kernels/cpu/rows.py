"""Ids in, rows out: hashing, pointers, digits and circular indices in compiled loops, a block of ids at a time.

The rows of a block are stored slot by slot: `rows[start + slot · BLOCK + i]`. Within a block they stay in the
processor's first cache between being named and being fetched. The row of slot 0 is −1 for an id that counts for nothing
(padding).
"""

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.indexing import MIX_1, MIX_2, NO_ID, SlotKind

Array = np.ndarray[Any, Any]

BLOCK = 256  # ids at a time
LINE = 8  # keys in a line of the cache


def record(names: str) -> np.dtype[Any]:
    """The type of a record of integers."""
    return np.dtype([(name, np.int64) for name in names.split()])


# a slot: see `indexing.sources`
SLOT = record("kind first_row num_rows pointers num_ids bits first_bit stride seeds step dim block_size")
OWN, HASHED, LEARNED, DIGIT, CIRCULAR, _ = (int(kind) for kind in SlotKind)
_MIX_1, _MIX_2 = np.uint64(MIX_1 % 2**64), np.uint64(MIX_2 % 2**64)
_LOW = np.uint64(0xFFFF_FFFF)
_27, _30, _31, _32 = (np.uint64(shift) for shift in (27, 30, 31, 32))
_TOP = np.uint64(1 << 63)
_1, _2, _3, _6, _63 = (np.uint64(number) for number in (1, 2, 3, 6, 63))

count_bits = memory.count_bits
read_uint8, read_int32 = memory.read_uint8, memory.read_int32
read_int64, read_uint64 = memory.read_int64, memory.read_uint64


@compile_loops
def scramble(x: Any) -> Any:
    """See `indexing.multiply_shift.scramble`."""
    x = (x ^ (x >> _30)) * _MIX_1
    x = (x ^ (x >> _27)) * _MIX_2
    return x ^ (x >> _31)


@compile_loops
def hash_one(x: Any, seeds: Any, num_rows: Any) -> Any:
    """The row of a single id under the three numbers at `seeds`."""
    mixed = scramble(x)
    a, b, c = read_uint64(seeds), read_uint64(seeds + 8), read_uint64(seeds + 16)
    value = (((mixed & _LOW) + a) * ((mixed >> _32) + b) + c) >> _32
    return (value * np.uint64(num_rows)) >> _32


@compile_loops
def bucket_of(key: Any, shift: Any) -> Any:
    """Where the directory of `indexing.OpenRowMap` has a key; keys are in the order of signed integers."""
    return np.int64((key ^ _TOP) >> np.uint64(shift))


@compile_loops
def find_open(keys: Any, starts: Any, shift: Any, count: Any, key: Any) -> Any:
    """The row of a key of `indexing.OpenRowMap`, whose keys and directory are at these addresses; 0 if it has none."""
    return find_key(keys, guess(starts + 4 * bucket_of(key, shift), shift, key), count, np.int64(key))


@compile_loops
def guess(bucket: Any, shift: Any, key: Any) -> Any:
    """About where a key is, if those of its bucket, whose start is at an address, are spread evenly."""
    start, end = read_int32(bucket), read_int32(bucket + 4)
    share = ((key ^ _TOP) << np.uint64(64 - shift)) >> _32
    return np.int64(start) + np.int64((share * np.uint64(end - start)) >> _32)


@compile_loops
def find_key(keys: Any, at: Any, count: Any, key: Any) -> Any:
    """The row of a key that is about the `at`-th of `count` keys, which rise; 0 if it has none."""
    if count >= LINE:  # without branches that nobody foresees, and mostly in one line of the cache
        at = min(at & -LINE, count - LINE)
        at += 4 * np.int64(read_int64(keys + 8 * (at + 3)) < key)
        at += 2 * np.int64(read_int64(keys + 8 * (at + 1)) < key)
        at += np.int64(read_int64(keys + 8 * at) < key)
        if read_int64(keys + 8 * at) == key:
            return at + 1
    while at > 0 and read_int64(keys + 8 * (at - 1)) >= key:
        at -= 1
    while at < count and read_int64(keys + 8 * at) < key:
        at += 1
    return at + 1 if at < count and read_int64(keys + 8 * at) == key else np.int64(0)


@compile_loops
def fill_rows(
    slots: Array, feature: Any, source: Any, first: Any, count: Any, rows: Array, start: Any, scratch: Array
) -> Any:
    """Fill `count` rows of each slot of a feature from `first` on of the block at `start`; False if an id is wrong.

    source: the address of the first id, bytes of an id, and from one to the next.
    """
    own, low, high = scratch[0], scratch[1], scratch[2]
    num_ids = np.uint64(count)
    if not _read_ids(source, num_ids, np.uint64(feature.last_id), own):
        return False
    leaves_out = _note_left_out(feature, own, num_ids, scratch[3])
    is_mixed = False
    for s in range(feature.first_slot, feature.first_slot + feature.columns * feature.terms):
        to = np.uint64(start + (s - feature.first_slot) * BLOCK + first)
        if slots[s].kind == HASHED:
            is_mixed = is_mixed or _mix(own, num_ids, low, high)
            _hash(slots[s], low, high, num_ids, rows, to)
        else:
            _fill(slots[s], own, num_ids, rows, to)
    for i in range(num_ids if leaves_out else np.uint64(0)):
        if scratch[3, i]:
            rows[np.uint64(start + first) + i] = -1
    return True


@compile_loops
def _fill(slot: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
    if slot.kind == LEARNED and slot.bits == 8:
        _follow_bytes(slot, own, count, rows, to)
    elif slot.kind == LEARNED:
        _follow_packed(slot, own, count, rows, to)
    elif slot.kind == OWN:
        for i in range(count):
            rows[to + i] = np.int32(np.uint64(slot.first_row) + own[i])
    elif slot.kind == DIGIT:
        _divide(slot, own, count, rows, to)
    elif slot.kind == CIRCULAR:
        _go_round(slot, own, count, rows, to)


@compile_loops
def _read_ids(source: Any, count: Any, last: Any, own: Array) -> bool:
    """Read ids of 4 or 8 bytes; False if one is beyond the last. A negative one is a large one without its sign."""
    ids, id_bytes, stride = source
    is_wrong = False
    for i in range(count):
        at = ids + np.int64(i) * stride
        own[i] = np.uint64(np.int64(read_int32(at))) if id_bytes == 4 else read_uint64(at)
        is_wrong |= own[i] > last
    return not is_wrong


@compile_loops
def _mix(own: Array, count: Any, low: Array, high: Array) -> bool:
    for i in range(count):
        x = scramble(own[i])
        low[i] = x & _LOW
        high[i] = x >> _32
    return True


@compile_loops
def _hash(slot: Any, low: Array, high: Array, count: Any, rows: Array, to: Any) -> None:
    base, num_rows, seeds = np.uint64(slot.first_row), np.uint64(slot.num_rows), slot.seeds
    a, b, c = read_uint64(seeds), read_uint64(seeds + 8), read_uint64(seeds + 16)
    for i in range(count):
        value = ((low[i] + a) * (high[i] + b) + c) >> _32
        rows[to + i] = np.int32(base + ((value * num_rows) >> _32))


@compile_loops
def _follow_packed(slot: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
    """Pointers of any width: four bytes are read for each, then all are shifted, by vector instructions."""
    base, mask = slot.first_row, np.int32((1 << min(slot.bits, 31)) - 1)
    address, stride, first_bit = slot.pointers, slot.stride, slot.first_bit
    for i in range(count):
        rows[to + i] = read_int32(address + ((np.int64(own[i]) * stride + first_bit) >> 3))
    low_stride, low_first = np.int32(stride), np.int32(first_bit)
    for i in range(count):
        shift = (np.int32(own[i]) * low_stride + low_first) & 7
        rows[to + i] = np.int32(base + ((rows[to + i] >> shift) & mask))


@compile_loops
def _follow_bytes(slot: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
    """The same for pointers of a byte each, which need no shift."""
    base, address, stride = slot.first_row, slot.pointers + (slot.first_bit >> 3), slot.stride >> 3
    for i in range(count):
        rows[to + i] = np.int32(base + np.int64(read_uint8(address + np.int64(own[i]) * stride)))


@compile_loops
def _divide(slot: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
    base, num_rows, step = np.uint64(slot.first_row), np.uint64(slot.num_rows), np.uint64(slot.step)
    for i in range(count):
        rows[to + i] = np.int32(base + (own[i] // step) % num_rows)


@compile_loops
def _go_round(slot: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
    dim, size, seeds, block_size = slot.dim, slot.num_rows, slot.seeds, slot.block_size
    for i in range(count):
        position = np.int64(own[i]) * dim
        block = position // block_size
        inside = position - block * block_size
        place = (np.int64(hash_one(np.uint64(block), seeds, size)) + inside) % size
        for number in range(dim):
            if inside == block_size:
                block += 1
                inside = 0
                place = np.int64(hash_one(np.uint64(block), seeds, size))
            rows[to + i + np.uint64(number * BLOCK)] = np.int32(place)
            inside += 1
            place += 1
            if place == size:
                place = 0


@compile_loops
def _note_left_out(feature: Any, own: Array, count: Any, left_out: Array) -> bool:
    """Note which ids count for nothing, if any may; with a row map, put rows, counted from 0, in the place of ids."""
    padding, map_bits, map_ranks = feature.padding, feature.map_bits, feature.map_ranks
    if padding == NO_ID and not (map_bits or feature.map_shift):  # of an open map without keys there is no address
        return False
    for i in range(count):
        left_out[i] = own[i] == np.uint64(padding)
        if feature.map_shift:
            found = np.uint64(find_open(map_bits, map_ranks, feature.map_shift, feature.map_count, scramble(own[i])))
            left_out[i] |= np.uint64(found == 0)
            own[i] = found - np.uint64(found > 0)
        elif map_bits:
            word, place = read_uint64(map_bits + np.int64((own[i] >> _6) << _3)), own[i] & _63
            below = word & ((_1 << place) - _1)
            row = np.uint64(read_int32(map_ranks + np.int64((own[i] >> _6) << _2))) + count_bits(below)
            has_row = (word >> place) & _1
            left_out[i] |= _1 - has_row
            own[i] = row * has_row
    return True
