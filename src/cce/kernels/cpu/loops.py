"""Many features of a batch in one call: compiled loops over features, blocks of ids, slots and columns.

An id is a bag of one. Forward is cut into ranges of examples, backward into pairs of a feature and some of its columns,
which share no row of a codebook: threads never write to the same memory, and sums are made in the same order on any
number of them.

What is the same for every id is known when the loops are compiled (`plan.Specialisation`): the lengths of the tuples of
`special` say how many floats one instruction handles, how many rows are added up, and how many columns there are. Where
the last two are empty, any number will do, and a row may be several runs of floats long. `kind` says how floats are
stored: see `compiled.memory`. Vectors and gradients are float32, or float64 where the codebook is.
"""

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import BLOCK, fill_rows, record

Array = np.ndarray[Any, Any]

# One feature. `last_id`: the largest, −1 if any will do; `out`: values before its own in a vector. Of a row map,
# addresses; 0: ids are rows themselves; with a shift, it is open and has so many keys
FEATURE = record(
    "place last_id padding codebook scales columns terms width out first_slot map_bits map_ranks map_shift map_count"
)
UNIT = record("feature first_column num_columns")  # of backward work
ONE, SIX, LOW_SIX = np.uint64(1), np.uint64(6), np.uint64(63)

put, put_sum, add, add_scaled = memory.put, memory.put_sum, memory.add, memory.add_scaled
clear, count_bits = memory.clear, memory.count_bits


@compile_loops
def look_up(
    features: Array,
    slots: Array,
    source: Any,
    share: Any,
    saved: Any,
    workspace: Array,
    out: Any,
    floats: Any,
    special: Any,
) -> bool:
    """Vectors of the examples in a share of the batch, of features that are alike; False if an id is out of range.

    source: the address of the ids, bytes of an id, from one to the next and from feature to feature, the size of the
        batch, and offsets and weights of bags, both empty where there are none: bag `b` of feature `f` is number
        `f · batch + b`.
    saved: receives the rows that were used, feature by feature from the given starts; those of one block without any.
    workspace: space for the vectors of a block of ids, before they are added to their bags.
    out, floats: the address of the vectors, and bytes from one to the next; bytes of a stored float and of a sum, and
        their kinds.
    """
    ids, id_bytes, id_stride, feature_stride, batch, offsets, weights = source
    rows, starts = saved
    sizes, kind, sum_kind = floats
    total = sizes[1]
    scratch = np.empty((4, BLOCK), np.uint64)
    for f in range(len(features)):
        feature = features[f]
        num_slots, dim = feature.columns * feature.terms, feature.columns * feature.width
        into, at = out[0] + feature.out * total, ids + feature.place * feature_stride
        own_bags = offsets[feature.place * batch : (feature.place + 1) * batch + 1]
        bag, origin, value, end = share[0], 0, share[0], share[1]
        if len(offsets):
            origin, value, end = own_bags[0], own_bags[share[0]], own_bags[share[1]]
        while value < end:
            first = (value - origin) % BLOCK
            count = min(BLOCK - first, end - value)
            start = starts[feature.place] + (value - origin - first) * num_slots if len(starts) else 0
            own_ids = (at + value * id_stride, id_bytes, id_stride)
            if not fill_rows(slots, feature, own_ids, first, count, rows, start, scratch):
                return False
            vectors, stride = into + value * out[1], out[1]
            if len(offsets):
                vectors, stride = np.int64(workspace.ctypes.data), dim * total
            _gather(feature, rows, start + first, count, vectors, stride, sizes, kind, special)
            for i in range(count if len(offsets) else 0):
                while own_bags[bag + 1] <= value + i:
                    bag += 1
                for k in range(0, dim * total, len(special[0]) * total):
                    here, source_k = into + bag * out[1] + k, vectors + i * stride + k
                    if len(weights):
                        add_scaled(here, source_k, weights[value + i], sum_kind, special[0])
                    else:
                        add(here, source_k, sum_kind, special[0])
            value += count
    return True


@compile_loops
def scatter(
    features: Array, units: Array, saved: Any, workspace: Array, tables: Array, grads: Any, kind: Any, special: Any
) -> None:
    """Add the gradient of every vector to the rows of the gradient `tables` (addresses), for some units of work.

    saved: the size of the batch, the rows that were used, their starts, and offsets and weights of bags.
    grads: the address of the gradients, bytes from one to the next, and of a float.
    """
    batch, rows, starts, offsets, weights = saved
    grad, grad_stride, item = grads
    for u in range(len(units)):
        feature = features[units[u].feature]
        num_slots, dim = feature.columns * feature.terms, feature.columns * feature.width
        upstream = grad + feature.out * item
        own_bags = offsets[feature.place * batch : (feature.place + 1) * batch + 1]
        bag, origin, num_ids = 0, 0, batch
        if len(offsets):
            origin, num_ids = own_bags[0], own_bags[batch] - own_bags[0]
        for begin in range(0, num_ids, BLOCK):
            count = min(BLOCK, num_ids - begin)
            at, stride = upstream + begin * grad_stride, grad_stride
            if len(offsets):
                at, stride = np.int64(workspace.ctypes.data), dim * item
            for i in range(count if len(offsets) else 0):
                value = origin + begin + i
                while own_bags[bag + 1] <= value:
                    bag += 1
                for k in range(0, dim * item, len(special[0]) * item):
                    into, weight = at + i * stride + k, weights[value] if len(weights) else 1.0
                    clear(into, kind, special[0])
                    add_scaled(into, upstream + bag * grad_stride + k, weight, kind, special[0])
            start = starts[feature.place] + begin * num_slots
            own = (at, stride, item)
            _scatter(feature, units[u], tables[feature.place], rows, start, count, own, kind, special)


@compile_loops
def _gather(
    feature: Any, rows: Array, start: Any, count: Any, into: Any, stride: Any, sizes: Any, kind: Any, special: Any
) -> None:
    """Write the vectors of `count` ids, whose rows begin at `start`, `stride` bytes apart."""
    item, total = sizes
    run, terms, columns = special
    num_columns = len(columns) if len(columns) else feature.columns
    num_terms = len(terms) if len(terms) else feature.terms
    num_runs = 1 if len(terms) else feature.width // len(run)
    row_bytes, codebook = num_runs * len(run) * item, feature.codebook
    for i in range(count):
        at = np.uint64(start + i)
        here = into + i * stride
        if rows[at] < 0:
            for k in range(num_columns * num_runs):
                clear(here + k * len(run) * total, kind, run)
            continue
        for _ in range(num_columns):
            first = codebook + np.int64(rows[at]) * row_bytes
            if num_terms == 1:
                for k in range(num_runs):
                    put(here + k * len(run) * total, first + k * len(run) * item, kind, run)
            else:
                second = codebook + np.int64(rows[at + np.uint64(BLOCK)]) * row_bytes
                for k in range(num_runs):
                    step = k * len(run) * item
                    put_sum(here + k * len(run) * total, first + step, second + step, kind, run)
            for term in range(2, num_terms):
                more = codebook + np.int64(rows[at + np.uint64(term * BLOCK)]) * row_bytes
                for k in range(num_runs):
                    add(here + k * len(run) * total, more + k * len(run) * item, kind, run)
            at += np.uint64(num_terms * BLOCK)
            here += num_runs * len(run) * total


@compile_loops
def _scatter(
    feature: Any, unit: Any, table: Any, rows: Array, start: Any, count: Any, grads: Any, kind: Any, special: Any
) -> None:
    """Add the gradients of `count` vectors to the rows of the gradient table that they came from."""
    grad, stride, item = grads
    run, terms, columns = special
    num_columns = len(columns) if len(columns) else unit.num_columns
    num_terms = len(terms) if len(terms) else feature.terms
    num_runs = 1 if len(terms) else feature.width // len(run)
    row_bytes, first_column = num_runs * len(run) * item, unit.first_column
    for i in range(count):
        if rows[np.uint64(start + i)] < 0:
            continue
        at = np.uint64(start + i + first_column * num_terms * BLOCK)
        here = grad + i * stride + first_column * row_bytes
        for _ in range(num_columns):
            for _ in range(num_terms):
                row = table + np.int64(rows[at]) * row_bytes
                for k in range(num_runs):
                    add(row + k * len(run) * item, here + k * len(run) * item, kind, run)
                at += np.uint64(BLOCK)
            here += row_bytes


@compile_loops
def number_rows(
    rows: Array, start: Any, count: Any, num_slots: Any, num_rows: Any, numbered: Array, used: Array
) -> Any:
    """Number the rows that the `count` ids of a feature used: how many they are; `used` receives them, rising.

    `numbered` receives the numbers of the rows, where `rows` has the rows.
    """
    bits, ranks = np.zeros((num_rows >> 6) + 1, np.uint64), np.empty((num_rows >> 6) + 1, np.int32)
    for i in range(count):
        at = np.uint64(start + i // BLOCK * BLOCK * num_slots + i % BLOCK)
        for _ in range(num_slots if rows[at] >= 0 else 0):
            row = np.uint64(rows[at])
            bits[row >> SIX] |= ONE << (row & LOW_SIX)
            at += np.uint64(BLOCK)
    num_used = 0
    for word in range(len(bits)):
        ranks[word] = num_used
        left = bits[word]
        while left:
            lowest = left & (~left + ONE)
            used[num_used] = word * 64 + np.int64(count_bits(lowest - ONE))
            num_used += 1
            left ^= lowest
    for i in range(count):
        at = np.uint64(start + i // BLOCK * BLOCK * num_slots + i % BLOCK)
        if rows[at] < 0:
            numbered[at] = -1
            continue
        for _ in range(num_slots):
            row = np.uint64(rows[at])
            below = bits[row >> SIX] & ((ONE << (row & LOW_SIX)) - ONE)
            numbered[at] = ranks[row >> SIX] + np.int32(count_bits(below))
            at += np.uint64(BLOCK)
    return num_used
