"""Ids in, rows out: hashing, pointers, digits and circular indices in compiled loops, a block of ids at a time.

The rows of a block are stored slot by slot: `rows[start + slot · BLOCK + i]`. Within a block they stay in the
processor's first cache between being named and being fetched. The row of slot 0 is −1 for an id that counts for nothing
(padding).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.indexing import MIX_1, MIX_2, SlotKind

Array = np.ndarray[Any, Any]

BLOCK = 256  # ids at a time
# columns of the table of slots
KIND, FIRST_ROW, NUM_ROWS, ADDRESS, STRIDE, BITS, NUM_LEARNED, SEEDS, STEP, BLOCK_SIZE, NUM_SLOT_COLUMNS = range(11)

OWN, HASHED, LEARNED, DIGIT, PLACES, FILLED = (int(kind) for kind in SlotKind)
LEARNED_FOUR = 6  # four pointers side by side, of 4 or 16 bits each: the first one's slot fills all
_MIX_1, _MIX_2 = np.uint64(MIX_1 % 2**64), np.uint64(MIX_2 % 2**64)
_LOW = np.uint64(0xFFFF_FFFF)
_27, _30, _31, _32 = (np.uint64(shift) for shift in (27, 30, 31, 32))
_1, _2, _3, _6, _63 = (np.uint64(number) for number in (1, 2, 3, 6, 63))

read_int64, read_uint64 = memory.read_int64, memory.read_uint64
count_bits = memory.count_bits
read_uint8, read_uint16, read_int32 = memory.read_uint8, memory.read_uint16, memory.read_int32


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
def fill_rows(
    slots: Array,
    num_embeddings: Any,
    left_out: tuple[Any, Any, Any],
    ids: Any,
    id_bytes: Any,
    stride: Any,
    first: Any,
    count: Any,
    rows: Array,
    start: Any,
    scratch: Array,
) -> Any:
    """Fill `count` rows of each slot from `first` on of the block at `start`: −1, or which id is out of range first.

    left_out: the padding, or −1, and the addresses of a row map, or 0: ids that have no row there count for nothing.
    """
    padding, map_bits, map_ranks = left_out
    own, low, high = scratch[0], scratch[1], scratch[2]
    num_ids = np.uint64(count)
    wrong = _read_ids(ids, id_bytes, stride, num_ids, np.uint64(num_embeddings), own)
    if wrong >= 0:
        return wrong
    leaves_out = _note_left_out(padding, map_bits, map_ranks, own, num_ids, scratch[3])
    is_mixed = False
    for s in range(len(slots)):
        kind = slots[s, KIND]
        to = np.uint64(start + s * BLOCK + first)
        if kind == HASHED:
            is_mixed = is_mixed or _mix(own, num_ids, low, high)
            _hash(slots[s], low, high, num_ids, rows, to)
        elif kind == LEARNED:
            _follow(slots[s], own, num_ids, rows, to)
        elif kind == LEARNED_FOUR:
            _follow_four(slots, s, own, num_ids, rows, np.uint64(start + first))
        elif kind == OWN:
            _copy(slots[s], own, num_ids, rows, to)
        elif kind == DIGIT:
            _divide(slots[s], own, num_ids, rows, to)
        elif kind == PLACES:
            _name_places(slots[s], own, num_ids, rows, to)
    if leaves_out:
        _leave_out(scratch[3], num_ids, rows, np.uint64(start + first))
    return -1


@compile_loops
def read_id(address: Any, id_bytes: Any) -> Any:
    """An id of 4 or 8 bytes. A negative one is a large one without its sign."""
    return np.uint64(np.int64(read_int32(address))) if id_bytes == 4 else read_uint64(address)


@compile_loops
def _read_ids(ids: Any, id_bytes: Any, stride: Any, count: Any, limit: Any, own: Array) -> Any:
    is_wrong = False
    for i in range(count):
        own[i] = read_id(ids + np.int64(i) * stride, id_bytes)
        is_wrong |= own[i] >= limit
    if is_wrong:
        for i in range(count):
            if own[i] >= limit:
                return np.int64(i)
    return -1


@compile_loops
def _mix(own: Array, count: Any, low: Array, high: Array) -> bool:
    for i in range(count):
        x = scramble(own[i])
        low[i] = x & _LOW
        high[i] = x >> _32
    return True


@compile_loops
def _hash(slot: Array, low: Array, high: Array, count: Any, rows: Array, to: Any) -> None:
    base, num_rows, seeds = np.uint64(slot[FIRST_ROW]), np.uint64(slot[NUM_ROWS]), slot[ADDRESS]
    a, b, c = read_uint64(seeds), read_uint64(seeds + 8), read_uint64(seeds + 16)
    for i in range(count):
        value = ((low[i] + a) * (high[i] + b) + c) >> _32
        rows[to + i] = np.int32(base + ((value * num_rows) >> _32))


@compile_loops
def _follow(slot: Array, own: Array, count: Any, rows: Array, to: Any) -> None:
    if slot[BITS] == 8:
        _follow_bytes(slot, own, count, rows, to)
    else:
        _follow_packed(slot, own, count, rows, to)


@compile_loops
def _follow_packed(slot: Array, own: Array, count: Any, rows: Array, to: Any) -> None:
    """Pointers of any width: that of id 0 begins at bit `STEP`, that of the next `STRIDE` bits later."""
    base, num_learned, mask = slot[FIRST_ROW], np.uint64(slot[NUM_LEARNED]), (1 << slot[BITS]) - 1
    address, stride, first_bit = slot[ADDRESS], slot[STRIDE], slot[STEP]
    for i in range(count):
        if own[i] < num_learned:
            bit = np.int64(own[i]) * stride + first_bit
            read = np.int64(read_int32(address + (bit >> 3)))
            rows[to + i] = np.int32(base + ((read >> (bit & 7)) & mask))
        else:
            rows[to + i] = np.int32(base + np.int64(hash_one(own[i], slot[SEEDS], slot[NUM_ROWS])))


@compile_loops
def _follow_bytes(slot: Array, own: Array, count: Any, rows: Array, to: Any) -> None:
    """The same for pointers of a byte each, which need no shift."""
    base, num_learned = slot[FIRST_ROW], np.uint64(slot[NUM_LEARNED])
    address, stride = slot[ADDRESS] + (slot[STEP] >> 3), slot[STRIDE] >> 3
    for i in range(count):
        if own[i] < num_learned:
            rows[to + i] = np.int32(base + np.int64(read_uint8(address + np.int64(own[i]) * stride)))
        else:
            rows[to + i] = np.int32(base + np.int64(hash_one(own[i], slot[SEEDS], slot[NUM_ROWS])))


@compile_loops
def _follow_four(slots: Array, first: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
    """Pointers of 4 or 16 bits that are read four at once."""
    if slots[first, BITS] == 4:
        _follow_four_short(slots, first, own, count, rows, to)
    else:
        _follow_four_wide(slots, first, own, count, rows, to)


def _follow_four_of(bits: int) -> Any:
    """A loop for pointers of 4 or 16 bits, compiled with its shifts known."""
    size, mask = bits // 2, np.uint64((1 << bits) - 1)
    shift_1, shift_2, shift_3 = np.uint64(bits), np.uint64(2 * bits), np.uint64(3 * bits)

    @compile_loops
    def follow(slots: Array, first: Any, own: Array, count: Any, rows: Array, to: Any) -> None:
        """Four pointers in one read; their slots are `STEP` apart."""
        step, address, stride = slots[first, STEP], slots[first, ADDRESS], slots[first, STRIDE]
        places = (first, first + step, first + 2 * step, first + 3 * step)
        base_0, base_1 = np.uint64(slots[places[0], FIRST_ROW]), np.uint64(slots[places[1], FIRST_ROW])
        base_2, base_3 = np.uint64(slots[places[2], FIRST_ROW]), np.uint64(slots[places[3], FIRST_ROW])
        to_0, to_1 = to + np.uint64(places[0] * BLOCK), to + np.uint64(places[1] * BLOCK)
        to_2, to_3 = to + np.uint64(places[2] * BLOCK), to + np.uint64(places[3] * BLOCK)
        for i in range(count):
            at = address + np.int64(own[i]) * stride
            four = np.uint64(read_uint16(at)) if size == 2 else read_uint64(at)
            rows[to_0 + i] = np.int32(base_0 + (four & mask))
            rows[to_1 + i] = np.int32(base_1 + ((four >> shift_1) & mask))
            rows[to_2 + i] = np.int32(base_2 + ((four >> shift_2) & mask))
            rows[to_3 + i] = np.int32(base_3 + (four >> shift_3))

    return follow


_follow_four_short, _follow_four_wide = _follow_four_of(4), _follow_four_of(16)


@compile_loops
def _copy(slot: Array, own: Array, count: Any, rows: Array, to: Any) -> None:
    for i in range(count):
        rows[to + i] = np.int32(np.uint64(slot[FIRST_ROW]) + own[i])


@compile_loops
def _divide(slot: Array, own: Array, count: Any, rows: Array, to: Any) -> None:
    base, num_rows, step = np.uint64(slot[FIRST_ROW]), np.uint64(slot[NUM_ROWS]), np.uint64(slot[STEP])
    for i in range(count):
        rows[to + i] = np.int32(base + (own[i] // step) % num_rows)


@compile_loops
def _name_places(slot: Array, own: Array, count: Any, rows: Array, to: Any) -> None:
    dim, size, seeds, block_size = slot[STEP], slot[NUM_ROWS], slot[ADDRESS], slot[BLOCK_SIZE]
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
def _leave_out(left_out: Array, count: Any, rows: Array, to: Any) -> None:
    for i in range(count):
        if left_out[i]:
            rows[to + i] = -1


@compile_loops
def _note_left_out(padding: Any, map_bits: Any, map_ranks: Any, own: Array, count: Any, left_out: Array) -> bool:
    """Note which ids count for nothing, if any may; with a row map, put rows, counted from 0, in the place of ids."""
    if padding < 0 and not map_bits:
        return False
    for i in range(count):
        left_out[i] = own[i] == np.uint64(padding)
        if map_bits:
            word, place = read_uint64(map_bits + np.int64((own[i] >> _6) << _3)), own[i] & _63
            below = word & ((_1 << place) - _1)
            row = np.uint64(read_int32(map_ranks + np.int64((own[i] >> _6) << _2))) + count_bits(below)
            has_row = (word >> place) & _1
            left_out[i] |= _1 - has_row
            own[i] = row * has_row
    return True
