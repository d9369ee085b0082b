"""int8 rows in compiled loops: look ids up, sum their gradients, move the rows; all tables of a model in one call.

A table is a line of integers: sizes, and addresses of the arrays that `Int8Rows` and its optimizer hold. Vectors,
gradients and sums are those of all tables of a call. `embeddings.int8_rows` and `optim.row_step` have the definition in
plain torch; these loops give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import scramble

Array = np.ndarray[Any, Any]

# columns of the table of tables: what a lookup reads, …
(NUM_EMBEDDINGS, PADDING, DIM, BITS, RANKS, RECENT_IDS, RECENT_ROWS, RECENT_SIZE, RECORDS) = range(9)
# … what a step reads and writes besides, …
(SEEN, SEEN_BITS, MIN_COUNT, SHARED, NUM_ROWS, NUM_MAPPED, CAPACITY, KEY, SQUARES, VISITS) = range(9, 19)
# … and the gradients that it is taken on
(IDS, ROWS, OCCURRENCES, SUMS, NUM_IDS, TABLE_COLUMNS) = range(19, 25)
# numbers of a step
(SCALE, LR, DECAY, BETA, EPS, WEIGHT, UNIT, FACTOR, BOUND, STEP, VALUE_SQUARES, VALUE_COUNT, NUM_NUMBERS) = range(13)
LEVEL, USE, COUNT, STATE = range(4)  # bytes of a record behind its values, and how many they are

NO_ROW, EMPTY = 0, -1
AHEAD = 32  # ids whose rows are asked for before they are read
LARGEST = 127
SHIFT = 21  # bits of a float32 that a level of a second moment leaves out: two of its mantissa stay
OFFSET = (127 - 40) << (23 - SHIFT)  # of levels, which begin at 2**-40 and end at 2**24
NUM_GROUPS = 35  # of rows whose counts are in one octave
GOLDEN_24, MASK_24 = 0x9E3779, 0xFF_FFFF
_GOLDEN, _16, _40 = np.uint64(0x9E3779B97F4A7C15), np.uint64(16), np.uint64(40)
_MASK_24 = np.uint64(MASK_24)
_FRACTION = np.float32(2.0**-24)

LEVEL_VALUES = ((np.arange(256, dtype=np.int32) + OFFSET) << SHIFT).view(np.float32)
LEVEL_VALUES[0] = 0
_MANTISSA = np.where(np.arange(256) < 8, np.arange(256), 8 + np.arange(256) % 8)
COUNT_VALUES = (_MANTISSA * 2.0 ** np.maximum(np.arange(256) // 8 - 1, 0)).astype(np.float64)
SHARES = 0.5 ** np.arange(64)  # of an octave: powers of two, so that a product is as exact as a quotient
GROUPS = np.floor(np.log2(np.maximum(COUNT_VALUES, 1))).astype(np.int64)

pointer, count_bits = memory.pointer, memory.count_bits
carray, prefetch = memory.carray, memory.prefetch


# -- random numbers ----------------------------------------------------------------------------------------------------


@compile_loops
def uniform_at(key: Any, place: Any) -> Any:
    """See `indexing.noise`."""
    return np.float32(scramble(place * _GOLDEN + key) >> _40) * _FRACTION


# -- which row ---------------------------------------------------------------------------------------------------------


@compile_loops
def find_row(bits: Array, ranks: Array, keys: Array, rows: Array, given: Any) -> Any:
    """The row of an id: that of the map, or one that it was given since; 0 if it has none."""
    word, place = np.uint64(bits[given >> 6]), np.uint64(given & 63)
    if (word >> place) & np.uint64(1):
        below = word & ((np.uint64(1) << place) - np.uint64(1))
        return np.int64(ranks[given >> 6]) + np.int64(count_bits(below)) + 1
    if len(keys):
        slot = find_slot(keys, given)
        if keys[slot] == given:
            return np.int64(rows[slot])
    return NO_ROW


@compile_loops
def find_slot(keys: Array, given: Any) -> Any:
    """Where an id is, or would be put, among ids that have rows since the map was made."""
    mask = len(keys) - 1
    slot = np.int64(scramble(np.uint64(given)) & np.uint64(mask))
    while keys[slot] != given and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


@compile_loops
def insert_recent(keys: Array, rows: Array, given: Array, first_row: Any) -> None:
    """Note the rows of ids, one after the other from `first_row` on."""
    for i in range(len(given)):
        slot = find_slot(keys, given[i])
        keys[slot] = given[i]
        rows[slot] = first_row + i


@compile_loops
def _map_of(table: Array) -> Any:
    words, size = (table[NUM_EMBEDDINGS] + 63) // 64, table[RECENT_SIZE]
    return (
        carray(pointer(table[BITS]), (words,), np.int64),
        carray(pointer(table[RANKS]), (words,), np.int32),
        carray(pointer(table[RECENT_IDS]), (size,), np.int64),
        carray(pointer(table[RECENT_ROWS]), (size,), np.int32),
    )


# -- lookups -----------------------------------------------------------------------------------------------------------


@compile_loops
def look_up(tables: Array, scales: Array, ids: Array, out: Array, into: Array, first: Any, last: Any) -> Any:
    """Vectors `(batch, tables, dim)` of ids `(batch, tables)` for the tables in `[first, last)`.

    into: receives the rows `(tables, batch)`, if there is room. Returns −1, or which table has a wrong id.
    """
    dim, found = out.shape[2], np.empty(AHEAD, np.int64)
    for f in range(first, last):
        table, scale = tables[f], scales[f]
        limit, padding = table[NUM_EMBEDDINGS], table[PADDING]
        bits, ranks, keys, rows = _map_of(table)
        records = carray(pointer(table[RECORDS]), (np.int64(1) << 31, dim + STATE), np.int8)
        for begin in range(0, len(ids), AHEAD):
            count = min(AHEAD, len(ids) - begin)
            for i in range(count):
                given = ids[begin + i, f]
                if given < 0 or given >= limit:
                    return f
                prefetch(table[BITS] + 8 * (given >> 6))
                prefetch(table[RANKS] + 4 * (given >> 6))
            for i in range(count):
                found[i] = find_row(bits, ranks, keys, rows, ids[begin + i, f])
                prefetch(table[RECORDS] + found[i] * (dim + STATE))
            if len(into):
                into[f, begin : begin + count] = found[:count]
            _decode(records, found, ids[begin : begin + count, f], padding, scale, out[begin : begin + count, f])
    return EMPTY


@compile_loops
def _decode(records: Array, rows: Array, ids: Array, padding: Any, scale: Any, out: Array) -> None:
    for i in range(len(ids)):
        row = rows[i]
        if ids[i] == padding:
            for k in range(out.shape[1]):
                out[i, k] = 0
        else:
            for k in range(out.shape[1]):
                out[i, k] = scale * np.float32(records[row, k])


@compile_loops
def find_rows(table: Array, ids: Array, rows: Array) -> None:
    """The row of each id of one table."""
    bits, ranks, keys, recent = _map_of(table)
    for i in range(len(ids)):
        rows[i] = find_row(bits, ranks, keys, recent, ids[i])


# -- gradients ---------------------------------------------------------------------------------------------------------


@compile_loops
def sum_gradients(
    tables: Array,
    ids: Array,
    found: Array,
    grad: Array,
    into: tuple[Array, Array, Array, Array],
    counts: Array,
    squares: Array,
    first: Any,
    last: Any,
) -> None:
    """Sum the gradients of each id, in the order in which ids first occur, for the tables in `[first, last)`.

    found: rows `(tables, batch)` of the ids, as `look_up` found them.
    into: distinct ids, rows and occurrences `(tables, batch)`, and sums `(tables, batch, dim)`.
    counts: receives how many ids are distinct. squares: of the sums of ids that the step will move, and of all.
    """
    distinct, rows, occurrences, sums = into
    batch, dim = grad.shape[0], grad.shape[2]
    size = 16
    while size < 2 * batch:
        size *= 2
    slots = np.empty(size, np.int32)
    mask = np.uint64(size - 1)
    for f in range(first, last):
        table = tables[f]
        slots[:] = EMPTY
        count = 0
        for i in range(batch):
            given = ids[i, f]
            if given == table[PADDING]:
                continue
            slot = np.int64(scramble(np.uint64(given)) & mask)
            while slots[slot] != EMPTY and distinct[f, slots[slot]] != given:
                slot = (slot + 1) & np.int64(mask)
            j: Any = np.int64(slots[slot])
            if j == EMPTY:
                j = count
                slots[slot] = np.int32(j)
                count += 1
                distinct[f, j], occurrences[f, j] = given, 1
                rows[f, j] = found[f, i]
                for k in range(dim):
                    sums[f, j, k] = grad[i, f, k]
            else:
                occurrences[f, j] += 1
                for k in range(dim):
                    sums[f, j, k] += grad[i, f, k]
        counts[f] = count
        squares[f, 0], squares[f, 1] = _add_squares(table, distinct[f], rows[f], occurrences[f], sums[f], count)


@compile_loops
def _add_squares(table: Array, ids: Array, rows: Array, occurrences: Array, sums: Array, count: Any) -> Any:
    """The sums of squares of gradients: of those that the step will move, and of all."""
    own, every = 0.0, 0.0
    for j in range(count):
        total = 0.0
        for k in range(sums.shape[1]):
            total += np.float64(sums[j, k]) * np.float64(sums[j, k])
        every += total
        if table[SHARED] or _is_moved(table, ids[j], rows[j], occurrences[j]):
            own += total
    return own, every


@compile_loops
def _is_moved(table: Array, given: Any, row: Any, occurrences: Any) -> Any:
    """Whether an id has a row, or will get one for these occurrences."""
    if row != NO_ROW or occurrences >= table[MIN_COUNT]:
        return True
    if not table[SEEN_BITS]:
        return False
    bit = given * table[SEEN_BITS]
    seen = carray(pointer(table[SEEN]), ((bit >> 3) + 1,), np.uint8)
    before = np.int64(seen[bit >> 3] >> (bit & 7)) & ((1 << table[SEEN_BITS]) - 1)
    return before + occurrences >= table[MIN_COUNT]


# -- steps -------------------------------------------------------------------------------------------------------------


@compile_loops
def step(tables: Array, numbers: Array, first: Any, last: Any) -> None:
    """Admit ids, and move the rows of all ids that have a gradient, for the tables in `[first, last)`."""
    for f in range(first, last):
        if tables[f, NUM_IDS]:
            _step_table(tables[f], numbers[f])


@compile_loops
def _step_table(table: Array, number: Array) -> None:
    dim, num_ids, capacity = table[DIM], table[NUM_IDS], table[CAPACITY]
    ids = carray(pointer(table[IDS]), (num_ids,), np.int64)
    rows = carray(pointer(table[ROWS]), (num_ids,), np.int64)
    occurrences = carray(pointer(table[OCCURRENCES]), (num_ids,), np.int64)
    sums = carray(pointer(table[SUMS]), (num_ids, dim), np.float32)
    codes = carray(pointer(table[RECORDS]), (capacity, dim + STATE), np.int8)
    state = carray(pointer(table[RECORDS]), (capacity, dim + STATE), np.uint8)
    squares = carray(pointer(table[SQUARES]), (NUM_GROUPS, dim), np.float64)
    visits = carray(pointer(table[VISITS]), (NUM_GROUPS,), np.float64)
    shared = np.zeros((1, dim), np.float32)
    shared_occurrences = _admit(table, number, ids, rows, occurrences, sums, codes, state, shared)
    if number[UNIT] == 0:
        number[UNIT] = _find_unit(rows, sums, shared, shared_occurrences, number[FACTOR])
        if number[UNIT] == 0:
            return
    occurs = np.zeros(NUM_GROUPS, np.bool_)
    _follow(rows, sums, state, shared, shared_occurrences, squares, visits, occurs, number)
    keys, room = _keys(table[KEY], number[STEP]), np.empty((2, dim + 1), np.float32)
    inverse, gain, shrink, least = _rates(squares, visits, occurs, number)
    rates = inverse, gain, shrink, least
    for i in range(num_ids):
        if i + AHEAD < num_ids:
            prefetch(table[RECORDS] + rows[i + AHEAD] * (dim + STATE))
        if rows[i] != NO_ROW:
            _move(number, rates, codes, state, keys, room, ids[i], rows[i], occurrences[i], sums, i)
    if shared_occurrences:
        _move(number, rates, codes, state, keys, room, np.int64(-1), np.int64(0), shared_occurrences, shared, 0)


@compile_loops
def _keys(key: Any, step: Any) -> Any:
    """Of the random numbers for second moments, values and counts: see `RowStep.keys`."""
    start, counter = np.uint64(key), np.uint64(np.int64(2 * step + 2))
    level = scramble(start + counter * _GOLDEN)
    count = scramble(start + (counter + np.uint64(1)) * _GOLDEN)
    return level, scramble(start), count


@compile_loops
def _admit(
    table: Array,
    number: Array,
    ids: Array,
    rows: Array,
    occurrences: Array,
    sums: Array,
    codes: Array,
    state: Array,
    shared: Array,
) -> Any:
    """Give rows to ids that have occurred often enough; the occurrences of the others, if they share a trained row."""
    size, dim, total = table[RECENT_SIZE], table[DIM], 0
    keys = carray(pointer(table[RECENT_IDS]), (size,), np.int64)
    recent = carray(pointer(table[RECENT_ROWS]), (size,), np.int32)
    seen = carray(pointer(table[SEEN]), (table[NUM_EMBEDDINGS] * table[SEEN_BITS] // 8 + 1,), np.uint8)
    steps, key = np.float32(number[BOUND] / number[SCALE]), scramble(np.uint64(table[KEY]) + _GOLDEN)
    for i in range(len(ids)):
        if rows[i] != NO_ROW:
            continue
        before = 0
        if table[SEEN_BITS]:
            bit = ids[i] * table[SEEN_BITS]
            mask = (1 << table[SEEN_BITS]) - 1
            before = np.int64(seen[bit >> 3] >> (bit & 7)) & mask
            kept = before + occurrences[i] if before + occurrences[i] < table[MIN_COUNT] else 0
            seen[bit >> 3] = (np.int64(seen[bit >> 3]) & ~(mask << (bit & 7))) | (kept << (bit & 7))
        if before + occurrences[i] >= table[MIN_COUNT]:
            row = table[NUM_ROWS]
            table[NUM_ROWS] += 1
            slot = find_slot(keys, ids[i])
            keys[slot], recent[slot], rows[i] = ids[i], np.int32(row), row
            state[row, dim + COUNT] = encode_count(np.float64(before), np.float32(0))
            for k in range(dim):
                codes[row, k] = start_code(key, ids[i], dim, k, steps)
        elif table[SHARED]:
            total += occurrences[i]
            for k in range(dim):
                shared[0, k] += sums[i, k]
    return total


@compile_loops
def start_code(key: Any, given: Any, dim: Any, k: Any, steps: Any) -> Any:
    """A code drawn from U(−steps, steps), the same for an id whenever it gets its row."""
    place = (np.uint64(given) * np.uint64(dim) + np.uint64(k)) * np.uint64(2)
    value = (uniform_at(key, place) * np.float32(2) - np.float32(1)) * steps
    rounded = np.floor(value + uniform_at(key, place + np.uint64(1)))
    return np.int8(min(max(rounded, np.float32(-LARGEST)), np.float32(LARGEST)))


@compile_loops
def _find_unit(rows: Array, sums: Array, shared: Array, shared_occurrences: Any, factor: Any) -> Any:
    """A power of two near the mean square of the first gradients, in which second moments are held."""
    total, count = 0.0, 0
    for i in range(len(rows)):
        if rows[i] != NO_ROW:
            count += 1
            for k in range(sums.shape[1]):
                value = np.float64(np.float32(factor) * sums[i, k])
                total += value * value
    if shared_occurrences:
        count += 1
        for k in range(shared.shape[1]):
            value = np.float64(np.float32(factor) * shared[0, k])
            total += value * value
    if total == 0:
        return 0.0
    return 2.0 ** math.frexp(total / (count * sums.shape[1]))[1]


@compile_loops
def _follow(
    rows: Array,
    sums: Array,
    state: Array,
    shared: Array,
    shared_occurrences: Any,
    squares: Array,
    visits: Array,
    occurs: Array,
    number: Array,
) -> None:
    """Let the sums of squares and of visits of each group follow a batch."""
    dim = squares.shape[1]
    for g in range(NUM_GROUPS):
        visits[g] *= number[BETA]
        for k in range(squares.shape[1]):
            squares[g, k] *= number[BETA]
    factor = np.float32(number[FACTOR])
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(state.ctypes.data + rows[i + AHEAD] * state.shape[1])
        if rows[i] != NO_ROW:
            g = GROUPS[state[rows[i], dim + COUNT]]
            visits[g], occurs[g] = visits[g] + 1, True
            for k in range(squares.shape[1]):
                value = np.float64(factor * sums[i, k])
                squares[g, k] += value * value
    if shared_occurrences:
        g = GROUPS[state[0, dim + COUNT]]
        visits[g], occurs[g] = visits[g] + 1, True
        for k in range(squares.shape[1]):
            value = np.float64(factor * shared[0, k])
            squares[g, k] += value * value


@compile_loops
def _rates(squares: Array, visits: Array, occurs: Array, number: Array) -> Any:
    """What a step depends on for each group that occurs, and dimension: see `optim.row_step`."""
    dim = squares.shape[1]
    inverse, least = np.zeros((NUM_GROUPS, dim)), np.zeros(NUM_GROUPS)
    gain, shrink = np.empty((NUM_GROUPS, dim), np.float32), np.empty((NUM_GROUPS, dim), np.float32)
    for g in range(NUM_GROUPS):
        if not occurs[g]:
            continue
        total = 0.0
        for k in range(dim):
            total += squares[g, k]
        mean = total / dim
        least[g] = mean / visits[g] / number[UNIT] * (1 - number[BETA]) if visits[g] > 0 else 0.0
        for k in range(dim):
            square = squares[g, k] / mean * number[UNIT] if squares[g, k] > 0 else 0.0
            root = np.sqrt(square) + number[EPS]
            inverse[g, k] = 1 / square if square > 0 else 0.0
            gain[g, k] = number[LR] / (root * number[SCALE]) if square > 0 else 0.0
            shrink[g, k] = number[LR] * number[DECAY] / root if square > 0 else 0.0
    return inverse, gain, shrink, least


@compile_loops
def _move(
    number: Array,
    rates: tuple[Array, Array, Array, Array],
    codes: Array,
    state: Array,
    keys: tuple[Any, Any, Any],
    room: Array,
    given: Any,
    row: Any,
    occurrences: Any,
    sums: Array,
    i: Any,
) -> None:
    """Move one row: see `optim.row_step`. room: for two rows of float32."""
    inverse, gain, shrink, least = rates
    noise, moved = room[0], room[1]
    level_key, code_key, count_key = keys
    dim, one, place = sums.shape[1], np.float32(1), np.uint64(given)
    group, factor = GROUPS[state[row, dim + COUNT]], np.float32(number[FACTOR])
    total = 0.0
    for k in range(dim):
        value = np.float64(factor * sums[i, k])
        total += value * value * inverse[group, k]
    square = np.float64(LEVEL_VALUES[state[row, dim + LEVEL]]) * number[BETA] + total / dim * (1 - number[BETA])
    use = (np.int64(state[row, dim + USE]) + 1) & 255
    state[row, dim + USE] = use
    count = COUNT_VALUES[state[row, dim + COUNT]] + occurrences
    state[row, dim + COUNT] = encode_count(count, uniform_at(count_key, place))
    if not square > 0:
        return
    state[row, dim + LEVEL] = _encode_level(np.float32(square), uniform_at(level_key, place), noise)
    speed = np.float32(np.sqrt(number[WEIGHT] / square))
    often = np.float32(1 / min(1.0, count / number[STEP]))
    pull = often * np.float32(np.sqrt(number[WEIGHT] / max(square, least[group])))
    shift = np.float32((use * GOLDEN_24) & MASK_24) * _FRACTION
    first = place * np.uint64((dim + 1) // 2)
    for pair in range((dim + 1) // 2):
        bits = scramble((first + np.uint64(pair)) * _GOLDEN + code_key)
        noise[2 * pair] = np.float32(bits >> _40) * _FRACTION + shift
        noise[2 * pair + 1] = np.float32((bits >> _16) & _MASK_24) * _FRACTION + shift
    for k in range(dim):
        noise[k] -= np.floor(noise[k])
    for k in range(dim):
        moved[k] = np.float32(codes[row, k]) - gain[group, k] * speed * (factor * sums[i, k])
    if number[DECAY] != 0:
        for k in range(dim):
            moved[k] = one / (one + shrink[group, k] * pull) * moved[k]
    values = np.int32(0)
    for k in range(dim):
        code = np.int32(min(max(np.floor(moved[k] + noise[k]), np.float32(-LARGEST)), np.float32(LARGEST)))
        codes[row, k] = np.int8(code)
        values += code * code
    number[VALUE_SQUARES] += np.float64(values) / dim
    number[VALUE_COUNT] += 1


@compile_loops
def _encode_level(square: Any, noise: Any, room: Array) -> Any:
    """The byte of a second moment; room: for a float32, to be read as an integer."""
    room[0] = square
    bits = np.int64(room.view(np.int32)[0]) + np.int64(noise * np.float32(1 << SHIFT))
    level: Any = min(max((bits >> SHIFT) - OFFSET, 1), 255)
    return np.uint8(level)


@compile_loops
def encode_count(count: Any, noise: Any) -> Any:
    """The byte of a count: exact below 16, beyond it one of eight in an octave, rounded at random."""
    if count < 16:
        return np.uint8(count)
    octave = np.int64(math.frexp(count)[1]) - 4
    mantissa = np.int64(np.floor(count * SHARES[octave] + np.float64(noise)))
    code: Any = min(octave * 8 + mantissa, 255)
    return np.uint8(code)


@compile_loops
def rescale(codes: Array, factor: Any, key: Any, first: Any, last: Any) -> None:
    """`code = round(factor · code)`, at random, for the rows in `[first, last)` of records."""
    dim = codes.shape[1] - STATE
    for row in range(first, last):
        for k in range(dim):
            moved = factor * np.float32(codes[row, k])
            rounded = np.floor(moved + uniform_at(key, np.uint64(row) * np.uint64(dim) + np.uint64(k)))
            codes[row, k] = np.int8(min(max(rounded, np.float32(-LARGEST)), np.float32(LARGEST)))


# -- the map made anew -------------------------------------------------------------------------------------------------


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
