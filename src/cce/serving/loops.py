"""Lookups of frozen tables as compiled loops: ids in, vectors out, nothing saved for a gradient.

A block of ids at a time: their rows are named slot by slot, then read and summed. Scrambling an id for its hashes is
done once for all slots. All numbers of a feature and of a slot are in tables of integers, addresses included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.indexing import MIX_1, MIX_2

Array = np.ndarray[Any, Any]

BLOCK = 128  # ids at a time
# columns of the table of features
OFFSET, VALUES, SCALE, NUM_IDS, PADDING, FIRST_SLOT, NUM_SLOTS, TERMS, PLACE, DIM, NUM_FEATURE_COLUMNS = range(11)
# columns of the table of slots
KIND, FIRST_ROW, NUM_ROWS, ADDRESS, BITS, STRIDE, FIRST_BIT, NUM_LEARNED, SEEDS, STEP, NUM_SLOT_COLUMNS = range(11)
OWN, HASHED, LEARNED, DIGIT = range(4)

_MIX_1, _MIX_2 = np.uint64(MIX_1 % 2**64), np.uint64(MIX_2 % 2**64)
_LOW = np.uint64(0xFFFF_FFFF)
_27, _30, _31, _32 = (np.uint64(shift) for shift in (27, 30, 31, 32))

read_uint8, read_uint16, read_int32 = memory.read_uint8, memory.read_uint16, memory.read_int32
read_int64, read_uint64, read_float32, write_float32 = (
    memory.read_int64,
    memory.read_uint64,
    memory.read_float32,
    memory.write_float32,
)
put, put_sum, add = memory.put, memory.put_sum, memory.add


@compile_loops
def look_up_floats(
    features: Array,
    slots: Array,
    ids: int,
    id_row: int,
    id_column: int,
    out: int,
    out_row: int,
    first: int,
    last: int,
    item: int,
    kind: Any,
    run: Any,
) -> int:
    """Vectors of stored floats, for rows `first` to `last` of a batch; −1, or a feature with an id out of range.

    ids, out: addresses; id_row, id_column, out_row: bytes from one row or column to the next.
    item: bytes of a stored value. kind, run: see `cce.compiled.memory`.
    """
    own, hashes, rows = _scratch(features)
    for f in range(len(features)):
        feature = features[f]
        for start in range(first, last, BLOCK):
            count = min(BLOCK, last - start)
            source = ids + start * id_row + feature[PLACE] * id_column
            if not _fill(feature, slots, source, id_row, count, own, hashes, rows):
                return int(feature[PLACE])
            target = out + start * out_row + feature[OFFSET]
            _sum_floats(feature, rows, target, out_row, count, item, kind, run)
            _pad(feature, own, target, out_row, count)
    return -1


@compile_loops
def look_up_codes(
    features: Array,
    slots: Array,
    ids: int,
    id_row: int,
    id_column: int,
    out: int,
    out_row: int,
    first: int,
    last: int,
    run: Any,
) -> int:
    """The same for rows of 8-bit integers with scales, each row one run."""
    own, hashes, rows = _scratch(features)
    for f in range(len(features)):
        feature = features[f]
        for start in range(first, last, BLOCK):
            count = min(BLOCK, last - start)
            source = ids + start * id_row + feature[PLACE] * id_column
            if not _fill(feature, slots, source, id_row, count, own, hashes, rows):
                return int(feature[PLACE])
            target = out + start * out_row + feature[OFFSET]
            _sum_codes(feature, rows, target, out_row, count, run)
            _pad(feature, own, target, out_row, count)
    return -1


@compile_loops
def _scratch(features: Array) -> Any:
    most = features[:, NUM_SLOTS].max()
    return np.empty(BLOCK, np.uint64), np.empty((2, BLOCK), np.uint64), np.empty((most, BLOCK), np.int64)


# -- rows --------------------------------------------------------------------------------------------------------------


@compile_loops
def _fill(
    feature: Array, slots: Array, source: int, stride: int, count: int, own: Array, hashes: Array, rows: Array
) -> bool:
    """Name the rows of a block; False if an id is out of range."""
    limit, is_right = np.uint64(feature[NUM_IDS]), True
    for i in range(count):
        own[i] = read_uint64(source + i * stride)  # a negative id is a large one without its sign
        is_right &= own[i] < limit
    if not is_right:
        return False
    is_mixed = False
    for s in range(feature[NUM_SLOTS]):
        slot = slots[feature[FIRST_SLOT] + s]
        kind = slot[KIND]
        if kind == LEARNED:
            _follow(slot, own, count, rows[s])
        if kind == HASHED or (kind == LEARNED and slot[NUM_LEARNED] < feature[NUM_IDS]):
            if not is_mixed:
                is_mixed = _mix(own, hashes, count)
            _hash(slot, own, hashes, count, rows[s])
        elif kind == OWN:
            for i in range(count):
                rows[s, i] = np.int64(own[i])
        elif kind == DIGIT:
            _divide(slot, own, count, rows[s])
    return True


@compile_loops
def _divide(slot: Array, own: Array, count: int, rows: Array) -> None:
    """Digits of ids."""
    step, radix, first = np.uint64(slot[STEP]), np.uint64(slot[NUM_ROWS]), slot[FIRST_ROW]
    for i in range(count):
        rows[i] = np.int64(own[i] // step % radix) + first


@compile_loops
def _mix(own: Array, hashes: Array, count: int) -> bool:
    for i in range(count):
        x = own[i]
        x = (x ^ (x >> _30)) * _MIX_1
        x = (x ^ (x >> _27)) * _MIX_2
        x = x ^ (x >> _31)
        hashes[0, i] = x & _LOW
        hashes[1, i] = x >> _32
    return True


@compile_loops
def _hash(slot: Array, own: Array, hashes: Array, count: int, rows: Array) -> None:
    """Rows of hashed ids: of all, or of those without a pointer."""
    a, b, c = (read_uint64(slot[SEEDS]), read_uint64(slot[SEEDS] + 8), read_uint64(slot[SEEDS] + 16))
    num_rows, first, num_learned = np.uint64(slot[NUM_ROWS]), slot[FIRST_ROW], np.uint64(slot[NUM_LEARNED])
    for i in range(count):
        value = ((hashes[0, i] + a) * (hashes[1, i] + b) + c) >> _32
        row = np.int64((value * num_rows) >> _32) + first
        if own[i] >= num_learned:
            rows[i] = row


@compile_loops
def _follow(slot: Array, own: Array, count: int, rows: Array) -> None:
    """Rows of ids with a pointer."""
    address, bits, first, num_learned = slot[ADDRESS], slot[BITS], slot[FIRST_ROW], slot[NUM_LEARNED]
    stride, first_bit = slot[STRIDE], slot[FIRST_BIT]
    for i in range(count):
        x = np.int64(own[i])
        if x >= num_learned:
            continue
        bit = x * stride + first_bit
        if bits == 8:
            row = np.int64(read_uint8(address + (bit >> 3)))
        elif bits == 16:
            row = np.int64(read_uint16(address + (bit >> 3)))
        elif bits == 32:
            row = np.int64(read_int32(address + (bit >> 3)))
        else:
            row = (np.int64(read_uint8(address + (bit >> 3))) >> (bit & 7)) & ((1 << bits) - 1)
        rows[i] = row + first


# -- vectors -----------------------------------------------------------------------------------------------------------


@compile_loops
def _sum_floats(
    feature: Array, rows: Array, target: int, stride: int, count: int, item: int, kind: Any, run: Any
) -> None:
    """A run of the row of each slot, summed over the terms of its column, in the order of the slots."""
    values, terms, parts = feature[VALUES], feature[TERMS], feature[SCALE]  # runs of a row, where there are no scales
    size, step = item * len(run), 4 * len(run)
    for i in range(count):
        to = target + i * stride
        for column in range(feature[NUM_SLOTS] // terms):
            slot = column * terms
            for part in range(parts):
                first = values + (rows[slot, i] * parts + part) * size
                if terms == 2:
                    put_sum(to, first, values + (rows[slot + 1, i] * parts + part) * size, kind, run)
                else:
                    put(to, first, kind, run)
                    for term in range(1, terms):
                        add(to, values + (rows[slot + term, i] * parts + part) * size, kind, run)
                to += step


@compile_loops
def _sum_codes(feature: Array, rows: Array, target: int, stride: int, count: int, run: Any) -> None:
    """The same for codes: a row is a run, times the scales of its slot."""
    values, terms, scales, width = feature[VALUES], feature[TERMS], feature[SCALE], len(run)
    for i in range(count):
        to = target + i * stride
        for slot in range(feature[NUM_SLOTS]):
            codes, scale = values + rows[slot, i] * width, scales + slot * width * 4
            if slot % terms == 0:
                to += 0 if slot == 0 else 4 * width
                for k in range(width):
                    value = np.float32(np.int8(read_uint8(codes + k))) * read_float32(scale + 4 * k)
                    write_float32(to + 4 * k, value)
            else:
                for k in range(width):
                    value = np.float32(np.int8(read_uint8(codes + k))) * read_float32(scale + 4 * k)
                    write_float32(to + 4 * k, read_float32(to + 4 * k) + value)


@compile_loops
def _pad(feature: Array, own: Array, target: int, stride: int, count: int) -> None:
    """Zeros for the padding id."""
    if feature[PADDING] < 0:
        return
    padding, dim = np.uint64(feature[PADDING]), feature[DIM]
    for i in range(count):
        if own[i] == padding:
            for k in range(dim):
                write_float32(target + i * stride + 4 * k, np.float32(0))
