"""Many features of a batch in one call: compiled loops over features, blocks of ids, slots and columns.

Forward is cut into ranges of the batch, backward into pairs of a feature and some of its columns, which share no row of
a codebook: threads never write to the same place, and sums are made in the same order on any number of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.compiled_rows import BLOCK, fill_rows
from cce.kernels.compiled_sums import gather_block, scatter_block

Array = np.ndarray[Any, Any]

# columns of the table of features
(PLACE, NUM_EMBEDDINGS, PADDING, CODEBOOK, COLUMNS, TERMS, WIDTH, OUT, FIRST_SLOT, NUM_FEATURE_COLUMNS) = range(10)
FEATURE, FIRST_COLUMN, UNIT_COLUMNS = range(3)  # columns of the table of units of backward work
NO_ID = -1

add, add_scaled, clear = memory.add, memory.add_scaled, memory.clear


@compile_loops
def look_up(
    features: Array,
    slots: Array,
    ids: Any,
    id_stride: Any,
    feature_stride: Any,
    first: Any,
    last: Any,
    rows: Array,
    starts: Array,
    out: Any,
    out_stride: Any,
    sizes: Any,
    kind: Any,
    form: Any,
) -> Any:
    """Vectors of batch rows `first` to `last` (`first` begins a block), of features that are alike.

    `rows` keeps the rows that were used, feature by feature from `starts`, or only those of one block where `starts` is
    empty. The answer is `NO_ID`, or the byte from `ids` on of an id that is out of range.
    """
    scratch = np.empty((3, BLOCK), np.uint64)
    for f in range(len(features)):
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        num_slots = shape[0] * shape[1]
        own_slots = slots[features[f, FIRST_SLOT] : features[f, FIRST_SLOT] + num_slots]
        place = features[f, PLACE]
        for begin in range(first, last, BLOCK):
            count = min(BLOCK, last - begin)
            start = starts[place] + begin * num_slots if len(starts) else 0
            at = begin * id_stride + place * feature_stride
            wrong = fill_rows(
                own_slots,
                features[f, NUM_EMBEDDINGS],
                features[f, PADDING],
                ids + at,
                id_stride,
                0,
                count,
                rows,
                start,
                scratch,
            )
            if wrong >= 0:
                return at + wrong * id_stride
            into = out + begin * out_stride + features[f, OUT] * sizes[1]
            gather_block(features[f, CODEBOOK], rows, start, count, shape, into, out_stride, sizes, kind, form)
    return NO_ID


@compile_loops
def scatter(
    features: Array,
    units: Array,
    batch: Any,
    rows: Array,
    starts: Array,
    tables: Array,
    grad: Any,
    grad_stride: Any,
    total: Any,
    kind: Any,
    form: Any,
) -> None:
    """Add the gradient of every vector to the rows of the gradient `tables` (addresses), for some `units` of work."""
    for u in range(len(units)):
        f = units[u, FEATURE]
        first_column, num_columns = units[u, FIRST_COLUMN], units[u, UNIT_COLUMNS]
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        place = features[f, PLACE]
        for begin in range(0, batch, BLOCK):
            count = min(BLOCK, batch - begin)
            start = starts[place] + begin * shape[0] * shape[1]
            at = grad + begin * grad_stride + features[f, OUT] * total
            scatter_block(
                tables[place], rows, start, count, first_column, num_columns, shape, at, grad_stride, total, kind, form
            )


@compile_loops
def look_up_bags(
    features: Array,
    slots: Array,
    ids: Any,
    offsets: Array,
    weights: Array,
    first_bag: Any,
    last_bag: Any,
    batch: Any,
    rows: Array,
    starts: Array,
    out: Any,
    out_stride: Any,
    sizes: Any,
    kind: Any,
    sum_kind: Any,
    form: Any,
) -> Any:
    """Sums over bags `first_bag` to `last_bag` of each feature; bag `b` of feature `f` is number `f · batch + b`.

    The vectors of a block of ids are composed aside and then added, times their `weights` (none: empty), to their bags.
    """
    scratch = np.empty((3, BLOCK), np.uint64)
    total = sizes[1]
    for f in range(len(features)):
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        num_slots, dim = shape[0] * shape[1], shape[0] * shape[2]
        own_slots = slots[features[f, FIRST_SLOT] : features[f, FIRST_SLOT] + num_slots]
        aside = np.empty(BLOCK * dim * total, np.uint8)
        vectors = np.int64(aside.ctypes.data)
        bags = features[f, PLACE] * batch
        origin = offsets[bags]
        bag = first_bag
        value, end = offsets[bags + first_bag], offsets[bags + last_bag]
        while value < end:
            first = (value - origin) % BLOCK
            count = min(BLOCK - first, end - value)
            start = starts[features[f, PLACE]] + (value - origin - first) * num_slots if len(starts) else 0
            wrong = fill_rows(
                own_slots,
                features[f, NUM_EMBEDDINGS],
                features[f, PADDING],
                ids + value * 8,
                8,
                first,
                count,
                rows,
                start,
                scratch,
            )
            if wrong >= 0:
                return (value + wrong) * 8
            gather_block(
                features[f, CODEBOOK],
                rows,
                start + first,
                count,
                shape,
                vectors,
                dim * total,
                sizes,
                kind,
                form,
            )
            for i in range(count):
                while offsets[bags + bag + 1] <= value + i:
                    bag += 1
                into = out + bag * out_stride + features[f, OUT] * total
                for k in range(0, dim * total, len(form[0]) * total):
                    if len(weights):
                        add_scaled(into + k, vectors + i * dim * total + k, weights[value + i], sum_kind, form[0])
                    else:
                        add(into + k, vectors + i * dim * total + k, sum_kind, form[0])
            value += count
    return NO_ID


@compile_loops
def scatter_bags(
    features: Array,
    units: Array,
    batch: Any,
    offsets: Array,
    weights: Array,
    rows: Array,
    starts: Array,
    tables: Array,
    grad: Any,
    grad_stride: Any,
    total: Any,
    kind: Any,
    form: Any,
) -> None:
    """Add the gradient of every bag, times the weight of the id, to the rows of each of its ids."""
    for u in range(len(units)):
        f = units[u, FEATURE]
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        dim = shape[0] * shape[2]
        aside = np.empty(BLOCK * dim * total, np.uint8)
        grads = np.int64(aside.ctypes.data)
        bags = features[f, PLACE] * batch
        origin, end = offsets[bags], offsets[bags + batch]
        bag = 0
        for begin in range(0, end - origin, BLOCK):
            count = min(BLOCK, end - origin - begin)
            for i in range(count):
                value = origin + begin + i
                while offsets[bags + bag + 1] <= value:
                    bag += 1
                upstream = grad + bag * grad_stride + features[f, OUT] * total
                for k in range(0, dim * total, len(form[0]) * total):
                    into = grads + i * dim * total + k
                    clear(into, kind, form[0])
                    add_scaled(into, upstream + k, weights[value] if len(weights) else 1.0, kind, form[0])
            scatter_block(
                tables[features[f, PLACE]],
                rows,
                starts[features[f, PLACE]] + begin * shape[0] * shape[1],
                count,
                units[u, FIRST_COLUMN],
                units[u, UNIT_COLUMNS],
                shape,
                grads,
                dim * total,
                total,
                kind,
                form,
            )
