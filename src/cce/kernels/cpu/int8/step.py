"""Steps of int8 rows in compiled loops: see `optim.row_step` for the rule."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.int8.gradients import is_wanted, seen_before, sketch_cell, sketch_hash
from cce.kernels.cpu.int8.tables import (
    COUNT,
    COUNT_VALUES,
    DEPTH,
    GOLDEN,
    GRADIENTS,
    GROUPS,
    LARGEST,
    LEVEL,
    LEVEL_VALUES,
    NO_ROW,
    NUM_GROUPS,
    RULE,
    STATE_NBYTES,
    USE,
    encode_count,
    encode_level,
    find_slot,
    table_at,
    uniform_at,
    uniform_pair,
)
from cce.kernels.cpu.rows import scramble

Array = np.ndarray[Any, Any]

WHOLE, ADMIT, MOVE = range(3)  # parts of a step
AHEAD = 32  # rows that are asked for before they are moved
FIT_EVERY = 256  # steps after which scales follow the values; they do so more often at first
FEWEST_RECENT = 64  # ids with rows that are not in the map
RECENT_SHARE = 32  # of all rows, that may be the last that are not
GOLDEN_24, MASK_24, GOLDEN_32, _32 = 0x9E3779, 0xFF_FFFF, 0x9E3779B9, np.uint64(32)

pointer, carray, prefetch, bits_of = memory.pointer, memory.carray, memory.prefetch, memory.bits_of
sum_squares, sum_weighted_squares = memory.sum_squares, memory.sum_weighted_squares
add_squares, move_codes, read_float64 = memory.add_squares, memory.move_codes, memory.read_float64


class Moved(NamedTuple):
    """The gradients of a step as arrays; the last of them is that of row 0, if it is trained."""

    ids: Array
    rows: Array
    occurrences: Array
    sums: int  # address
    num_shared: int  # occurrences of ids that share row 0
    shared: Array


class Rates(NamedTuple):
    """What a step depends on for each group and dimension: see `optim.row_step`."""

    inverse: Array
    gain: Array
    shrink: Array
    typical: Array


@compile_loops
def step(work: Array, first: Any, last: Any, run: Any, part: Any) -> Any:
    """Admit ids, and move the rows of all ids that have a gradient, for the tables in `[first, last)`.

    work: addresses of the records of a table, its gradients and its rule `(tables, 3)`. part: `WHOLE`, or `ADMIT`, up
    to the sums of squares that ranks add up, and then `MOVE`. Whether it is time to fit the scale of a table, to put
    its rows in order, or to take some away.
    """
    needs_care = False
    for t in range(first, last):
        table, rule = table_at(work[t, 0]), carray(pointer(work[t, 2]), (1,), RULE)[0]
        if part != MOVE:
            table.steps += 1
            carray(pointer(rule.step), (1,), np.float64)[0] += 1
        _step_table(table, carray(pointer(work[t, 1]), (1,), GRADIENTS)[0], rule, run, part)
        needs_care |= is_due(table.steps) or is_crowded(table.num_rows - 1 - table.num_mapped, table.num_mapped)
        needs_care |= table.num_rows > table.evicts_above or table.counted >= table.ages_at
        needs_care |= table.steps % table.expires_every == 0
    return needs_care


@compile_loops
def is_due(steps: Any) -> Any:
    """Whether the scale follows the values after this many steps: every now and then, and at powers of two before."""
    return steps % FIT_EVERY == 0 or (steps < FIT_EVERY and steps & (steps - 1) == 0)


@compile_loops
def is_crowded(num_recent: Any, num_mapped: Any) -> Any:
    """Whether so many rows are not in the map that it is time to put them there."""
    return num_recent > max(FEWEST_RECENT, num_mapped // RECENT_SHARE)


@compile_loops
def _step_table(table: Any, gradients: Any, rule: Any, run: Any, part: Any) -> None:
    num_ids, dim = gradients.num_ids, table.dim
    moved = Moved(
        carray(pointer(gradients.ids), (num_ids,), np.int64),
        carray(pointer(gradients.rows), (num_ids,), np.int64),
        carray(pointer(gradients.occurrences), (num_ids,), np.int64),
        gradients.sums,
        0,
        np.zeros(dim, np.float32),
    )
    state = carray(pointer(table.records), (table.capacity, table.width), np.uint8)
    unit = carray(pointer(rule.unit), (1,), np.float64)
    if unit[0] == 0:  # those of another optimizer
        for row in range(table.num_rows):
            state[row, dim + LEVEL] = 0
    num_shared: Any = _admit(table, moved, state) if part != MOVE else np.int64(0)
    moved = Moved(moved.ids, moved.rows, moved.occurrences, moved.sums, num_shared, moved.shared)
    factor = np.float32(rule.factor)
    if unit[0] == 0:
        unit[0] = _find_unit(moved, dim, factor, run)
        if unit[0] == 0:
            return
    occurs = _follow(table, moved, rule, state, run) if part != MOVE else np.ones(NUM_GROUPS, np.bool_)
    if part == ADMIT:
        return
    rates = _rates(table, rule, unit[0], occurs)
    _move_all(table, moved, rule, rates, state, run)


@compile_loops
def _admit(table: Any, moved: Moved, state: Array) -> Any:
    """Give rows to ids that have occurred often enough; the occurrences of the others, if they share a trained row."""
    size, dim, total = table.recent_size, table.dim, 0
    recent_ids = carray(pointer(table.recent_ids), (size,), np.int64)
    recent_rows = carray(pointer(table.recent_rows), (size,), np.int32)
    seen = carray(pointer(table.seen), (table.seen_size,), np.uint8)
    before = np.zeros(len(moved.ids), np.int64)
    sums = carray(pointer(moved.sums), (len(moved.ids), dim), np.float32)
    mask, table.demand = (1 << table.seen_bits) - 1, 0
    for i in range(len(moved.ids)):
        if moved.rows[i] != NO_ROW:
            continue
        given = moved.ids[i]
        before[i] = seen_before(table, given)
        is_admitted = is_wanted(table, given, before[i], moved.occurrences[i], table.steps)
        table.demand += is_admitted
        if is_admitted and table.num_rows >= table.most_rows:
            table.refused += 1
            is_admitted = False
        if table.seen_bits:
            bit, held = given * table.seen_bits, 0 if is_admitted else min(before[i] + moved.occurrences[i], mask)
            seen[bit >> 3] = (np.int64(seen[bit >> 3]) & ~(mask << (bit & 7))) | (held << (bit & 7))
        if is_admitted:
            row, slot = table.num_rows, find_slot(recent_ids, recent_rows, given)
            table.num_rows += 1
            table.admitted += 1
            recent_ids[slot], recent_rows[slot], moved.rows[i] = given, np.int32(row), row
            state[row, dim + COUNT] = encode_count(np.float64(before[i]), np.float32(0))
            _start(table, state[row], given)
        elif table.shares:
            total += moved.occurrences[i]
            for k in range(dim):
                moved.shared[k] += sums[i, k]
    if table.sketch_width:  # only now: counts do not depend on the order of ids
        _count_in_sketch(table, moved, before, seen)
    return total


@compile_loops
def _stamp(table: Any, own: Array) -> None:
    """Let a row keep the step that it was last moved in, if rows of the table do."""
    for byte in range(4 if table.stamps else 0):
        own[table.dim + STATE_NBYTES + byte] = (table.steps >> (8 * byte)) & 255


@compile_loops
def _count_in_sketch(table: Any, moved: Moved, before: Array, seen: Array) -> None:
    """Let the counters of ids that still have no row be no smaller than their counts."""
    for i in range(len(moved.ids)):
        if moved.rows[i] != NO_ROW:
            continue
        held = min(before[i] + moved.occurrences[i], 255)
        low, high = sketch_hash(table, moved.ids[i])
        for depth in range(DEPTH):
            cell = sketch_cell(table, low, high, depth)
            seen[cell] = max(np.int64(seen[cell]), held)
        table.counted += moved.occurrences[i]


@compile_loops
def start_rows(address: Any, ids: Array, first: Any) -> None:
    """Let the rows from `first` on, of the table at an address, be new ones of these ids."""
    table = table_at(address)
    state = carray(pointer(table.records), (table.capacity, table.width), np.uint8)
    for i in range(len(ids)):
        _start(table, state[first + i], ids[i])


@compile_loops
def _start(table: Any, own: Array, given: Any) -> None:
    """A row of codes drawn from U(−bound, bound), the same for an id whenever it gets its row."""
    _stamp(table, own)
    steps, key = np.float32(table.bound / table.scale), scramble(np.uint64(table.key) + GOLDEN)
    for k in range(table.dim):
        place = (np.uint64(given) * np.uint64(table.dim) + np.uint64(k)) * np.uint64(2)
        value = (uniform_at(key, place) * np.float32(2) - np.float32(1)) * steps
        rounded = np.floor(value + uniform_at(key, place + np.uint64(1)))
        own[k] = np.uint8(np.int8(min(max(rounded, np.float32(-LARGEST)), np.float32(LARGEST))))


@compile_loops
def _find_unit(moved: Moved, dim: Any, factor: Any, run: Any) -> Any:
    """A power of two near the mean square of the first gradients, in which second moments are held."""
    total, count = 0.0, 0
    for i in range(len(moved.rows)):
        if moved.rows[i] != NO_ROW:
            count += 1
            for k in range(0, dim, len(run)):
                total += sum_squares(moved.sums + 4 * (i * dim + k), factor, run)
    if moved.num_shared:
        count += 1
        for k in range(0, dim, len(run)):
            total += sum_squares(moved.shared.ctypes.data + 4 * k, factor, run)
    return 2.0 ** ((bits_of(total / (count * dim)) >> 52) - 1022) if total > 0 else 0.0


@compile_loops
def _follow(table: Any, moved: Moved, rule: Any, state: Array, run: Any) -> Array:
    """Let the sums of squares and of visits of each group follow a batch; which groups occur."""
    dim, factor, width = table.dim, np.float32(rule.factor), table.width
    squares = carray(pointer(rule.squares), (NUM_GROUPS * dim,), np.float64)
    visits = carray(pointer(rule.visits), (NUM_GROUPS,), np.float64)
    occurs = np.zeros(NUM_GROUPS, np.bool_)
    for k in range(len(squares)):
        squares[k] *= rule.beta
    for g in range(NUM_GROUPS):
        visits[g] *= rule.beta
    for i in range(len(moved.rows)):
        if i + AHEAD < len(moved.rows):
            prefetch(table.records + moved.rows[i + AHEAD] * width)
        if moved.rows[i] != NO_ROW:
            g = GROUPS[state[moved.rows[i], dim + COUNT]]
            visits[g], occurs[g] = visits[g] + 1, True
            for k in range(0, dim, len(run)):
                add_squares(rule.squares + 8 * (g * dim + k), moved.sums + 4 * (i * dim + k), factor, run)
    if moved.num_shared:
        g = GROUPS[state[0, dim + COUNT]]
        visits[g], occurs[g] = visits[g] + 1, True
        for k in range(0, dim, len(run)):
            add_squares(rule.squares + 8 * (g * dim + k), moved.shared.ctypes.data + 4 * k, factor, run)
    return occurs


@compile_loops
def _rates(table: Any, rule: Any, unit: Any, occurs: Array) -> Rates:
    """What a step depends on for each group that occurs, and dimension: see `optim.row_step`."""
    dim = table.dim
    squares = carray(pointer(rule.squares), (NUM_GROUPS, dim), np.float64)
    visits = carray(pointer(rule.visits), (NUM_GROUPS,), np.float64)
    inverse, typical = np.empty((NUM_GROUPS, dim)), np.empty(NUM_GROUPS)
    gain, shrink = np.empty((NUM_GROUPS, dim), np.float32), np.empty((NUM_GROUPS, dim), np.float32)
    for g in range(NUM_GROUPS):
        if not occurs[g]:
            continue
        total = 0.0
        for k in range(dim):
            total += squares[g, k]
        mean = total / dim
        typical[g] = mean / visits[g] / unit * (1 - rule.beta) if visits[g] > 0 else 0.0
        for k in range(dim):
            square = squares[g, k] / mean * unit if squares[g, k] > 0 else 0.0
            root = np.sqrt(square) + rule.eps
            inverse[g, k] = 1 / square if square > 0 else 0.0
            gain[g, k] = rule.lr / (root * table.scale) if square > 0 else 0.0
            shrink[g, k] = rule.lr * rule.weight_decay / root if square > 0 else 0.0
    return Rates(inverse, gain, shrink, typical)


@compile_loops
def _move_all(table: Any, moved: Moved, rule: Any, rates: Rates, state: Array, run: Any) -> None:
    weight, width = 1 - rule.beta ** read_float64(rule.step), table.width
    keys = scramble(np.uint64(table.key) + np.uint64(2 * table.steps + 2) * GOLDEN), scramble(np.uint64(table.key))
    for i in range(len(moved.rows)):
        if i + AHEAD < len(moved.rows):
            prefetch(table.records + moved.rows[i + AHEAD] * width)
        if moved.rows[i] != NO_ROW:
            one = (moved.ids[i], moved.rows[i], moved.occurrences[i], moved.sums + 4 * i * table.dim)
            _move(table, rule, weight, rates, state, keys, one, run)
    if moved.num_shared:
        one = (np.int64(-1), np.int64(0), moved.num_shared, np.int64(moved.shared.ctypes.data))
        _move(table, rule, weight, rates, state, keys, one, run)


@compile_loops
def _move(
    table: Any, rule: Any, weight: Any, rates: Rates, state: Array, keys: tuple[Any, Any], one: Any, run: Any
) -> None:
    """Move one row: its id, number and occurrences, and the address of its gradient."""
    given, row, occurrences, grad = one
    dim, factor, place, own = table.dim, np.float32(rule.factor), np.uint64(given), state[row]
    level_noise, count_noise = uniform_pair(keys[0], place)
    group = GROUPS[own[dim + COUNT]]
    at = group * dim
    total = 0.0
    for k in range(0, dim, len(run)):
        total += sum_weighted_squares(grad + 4 * k, factor, rates.inverse.ctypes.data + 8 * (at + k), run)
    square = np.float64(LEVEL_VALUES[own[dim + LEVEL]]) * rule.beta + total / dim * (1 - rule.beta)
    use = (np.int64(own[dim + USE]) + 1) & 255
    own[dim + USE] = use
    count = COUNT_VALUES[own[dim + COUNT]] + occurrences
    own[dim + COUNT] = encode_count(count, count_noise)
    _stamp(table, own)
    if not square > 0:
        return
    own[dim + LEVEL] = encode_level(np.float32(square), level_noise)
    speed = np.float32(np.sqrt(weight * (1 + 1 / count) / (square + rates.typical[group])))
    pull = np.float32(1 / min(1.0, count / table.steps)) * speed if rule.weight_decay != 0 else np.float32(0)
    seed, shift = np.int64(scramble(place * GOLDEN + keys[1]) >> _32), use * GOLDEN_24
    gain, shrink, codes = rates.gain.ctypes.data + 4 * at, rates.shrink.ctypes.data + 4 * at, own.ctypes.data
    values = np.int64(0)
    for k in range(0, dim, len(run)):
        values += move_codes(
            codes + k, grad + 4 * k, factor, gain + 4 * k, speed, shrink + 4 * k, pull, seed + k * GOLDEN_32, shift, run
        )
    table.value_squares += np.float64(values) / dim
    table.value_count += 1


@compile_loops
def find_full(work: Array, first: Any) -> Any:
    """The first table from `first` on that could not give a row to each id of its gradients; −1 if there is none."""
    for t in range(first, len(work)):
        table, gradients = table_at(work[t, 0]), carray(pointer(work[t, 1]), (1,), GRADIENTS)[0]
        num_rows = min(table.num_rows + gradients.num_ids, table.most_rows)
        if num_rows > table.capacity or 4 * (num_rows - 1 - table.num_mapped) > 3 * table.recent_size:
            return t
    return -1


@compile_loops
def rescale(codes: Array, dim: Any, factor: Any, key: Any, ids: Array, first: Any, last: Any) -> None:
    """`code = round(factor · code)`, at random, for the rows in `[first, last)` of records, which have these ids."""
    for row in range(first, last):
        for k in range(dim):
            moved = factor * np.float32(codes[row, k])
            rounded = np.floor(moved + uniform_at(key, np.uint64(ids[row]) * np.uint64(dim) + np.uint64(k)))
            codes[row, k] = np.int8(min(max(rounded, np.float32(-LARGEST)), np.float32(LARGEST)))
