"""Many features of a batch in one call: compiled loops over features, blocks of ids, slots and columns.

Forward is cut into chunks of the batch of single features, backward into pairs of a feature and some of its columns,
which share no row of a codebook: threads never write to the same memory, and sums are made in the same order on any
number of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.deduplicate import CHUNK, SMALL_IDS, copy_out, deduplicate_ids, sum_up
from cce.kernels.cpu.rows import BLOCK, fill_rows
from cce.kernels.cpu.sums import gather_block, scatter_block

Array = np.ndarray[Any, Any]

# columns of the table of features
(PLACE, NUM_EMBEDDINGS, PADDING, CODEBOOK, COLUMNS, TERMS, WIDTH, OUT, FIRST_SLOT) = range(9)
MAP_BITS, MAP_RANKS, NUM_FEATURE_COLUMNS = range(9, 12)  # of a row map; 0: ids are rows themselves
FEATURE, FIRST_COLUMN, UNIT_COLUMNS = range(3)  # columns of the table of units of backward work
NO_ID = -1

add, add_scaled, clear = memory.add, memory.add_scaled, memory.clear


@compile_loops
def look_up(
    features: Array,
    slots: Array,
    ids: Any,
    id_bytes: Any,
    id_stride: Any,
    feature_stride: Any,
    batch: Any,
    first: Any,
    last: Any,
    rows: Array,
    starts: Array,
    names: Array,
    listed: Array,
    distinct: Array,
    workspace: Array,
    out: Any,
    out_stride: Any,
    sizes: Any,
    kind: Any,
    sum_kind: Any,
    special: Any,
) -> Any:
    """Vectors of features that are alike, for tasks `first` to `last`: a task is a chunk of the batch of one feature.

    `rows` receives the rows that were used, feature by feature from `starts`, or only those of one block where `starts`
    is empty. `names` and `listed` receive which ids of a chunk are the same (see `deduplicate`), or have room for a
    chunk; `distinct` and `workspace` have room for the ids and the vectors of one. (They are the caller's, because
    compiled code frees its own arrays after they were last named, whoever still has their address.) The answer is
    `NO_ID`, or another number if an id was out of range.
    """
    scratch = np.empty((4, BLOCK), np.uint64)
    seen = np.empty(SMALL_IDS, np.uint16)
    num_chunks = (batch + CHUNK - 1) // CHUNK
    keep = len(starts) > 0
    total = sizes[1]
    for task in range(first, last):
        f, chunk = task // num_chunks, task % num_chunks
        place = features[f, PLACE]
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        num_slots, dim = shape[0] * shape[1], shape[0] * shape[2]
        own_slots = slots[features[f, FIRST_SLOT] : features[f, FIRST_SLOT] + num_slots]
        begin = chunk * CHUNK
        count = min(CHUNK, batch - begin)
        at, stride = ids + begin * id_stride + place * feature_stride, id_stride
        into, into_stride = out + begin * out_stride + features[f, OUT] * total, out_stride
        first_name = place * batch + begin if keep else 0
        num_listed, size_of_id = 0, id_bytes
        if len(names) and num_slots > 1:  # a vector that is one row is not composed
            num_listed = deduplicate_ids(at, size_of_id, stride, count, distinct, names, first_name, seen)
            if keep:
                listed[place, chunk] = num_listed
        num_ids = count
        if num_listed:
            num_ids, at, size_of_id, stride = num_listed, np.int64(distinct.ctypes.data), 8, 8
            into, into_stride = np.int64(workspace.ctypes.data), dim * total
        for done in range(0, num_ids, BLOCK):
            size = min(BLOCK, num_ids - done)
            start = starts[place] + (begin + done) * num_slots if keep else 0
            wrong = fill_rows(
                own_slots,
                features[f, NUM_EMBEDDINGS],
                (features[f, PADDING], features[f, MAP_BITS], features[f, MAP_RANKS]),
                at + done * stride,
                size_of_id,
                stride,
                0,
                size,
                rows,
                start,
                scratch,
            )
            if wrong >= 0:
                return wrong
            vectors = into + done * into_stride
            gather_block(features[f, CODEBOOK], rows, start, size, shape, vectors, into_stride, sizes, kind, special)
        if num_listed:
            to = out + begin * out_stride + features[f, OUT] * total
            copy_out(into, dim, names, first_name, count, to, out_stride, total, sum_kind, special[3])
    return NO_ID


@compile_loops
def scatter(
    features: Array,
    units: Array,
    batch: Any,
    rows: Array,
    starts: Array,
    names: Array,
    listed: Array,
    workspace: Array,
    tables: Array,
    grad: Any,
    grad_stride: Any,
    total: Any,
    kind: Any,
    special: Any,
) -> None:
    """Add the gradient of every vector to the rows of the gradient `tables` (addresses), for some `units` of work."""
    num_chunks = (batch + CHUNK - 1) // CHUNK
    for u in range(len(units)):
        f, first_column, num_columns = units[u, FEATURE], units[u, FIRST_COLUMN], units[u, UNIT_COLUMNS]
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        place = features[f, PLACE]
        before, dim = first_column * shape[2] * total, num_columns * shape[2]  # bytes before its values
        for chunk in range(num_chunks):
            begin = chunk * CHUNK
            num_ids = min(CHUNK, batch - begin)
            at, stride = grad + begin * grad_stride + features[f, OUT] * total, grad_stride
            num_listed = listed[place, chunk] if len(names) else 0
            if num_listed:
                sums = np.int64(workspace.ctypes.data)
                first_name = place * batch + begin
                sum_up(at + before, stride, names, first_name, num_ids, sums, dim, num_listed, total, kind, special[3])
                num_ids, at, stride = num_listed, sums - before, dim * total
            for done in range(0, num_ids, BLOCK):
                scatter_block(
                    tables[place],
                    rows,
                    starts[place] + (begin + done) * shape[0] * shape[1],
                    min(BLOCK, num_ids - done),
                    first_column,
                    num_columns,
                    shape,
                    at + done * stride,
                    stride,
                    total,
                    kind,
                    special,
                )


@compile_loops
def look_up_bags(
    features: Array,
    slots: Array,
    ids: Any,
    id_bytes: Any,
    offsets: Array,
    weights: Array,
    first_bag: Any,
    last_bag: Any,
    batch: Any,
    rows: Array,
    starts: Array,
    workspace: Array,
    out: Any,
    out_stride: Any,
    sizes: Any,
    kind: Any,
    sum_kind: Any,
    special: Any,
) -> Any:
    """Sums over bags `first_bag` to `last_bag` of each feature; bag `b` of feature `f` is number `f · batch + b`.

    The vectors of a block of ids are composed in `workspace` and then added, times their `weights` (none: empty), to
    their bags.
    """
    scratch = np.empty((4, BLOCK), np.uint64)
    total = sizes[1]
    for f in range(len(features)):
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        num_slots, dim = shape[0] * shape[1], shape[0] * shape[2]
        own_slots = slots[features[f, FIRST_SLOT] : features[f, FIRST_SLOT] + num_slots]
        vectors = np.int64(workspace.ctypes.data)
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
                (features[f, PADDING], features[f, MAP_BITS], features[f, MAP_RANKS]),
                ids + value * id_bytes,
                id_bytes,
                id_bytes,
                first,
                count,
                rows,
                start,
                scratch,
            )
            if wrong >= 0:
                return value + wrong
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
                special,
            )
            for i in range(count):
                while offsets[bags + bag + 1] <= value + i:
                    bag += 1
                into = out + bag * out_stride + features[f, OUT] * total
                for k in range(0, dim * total, len(special[0]) * total):
                    if len(weights):
                        add_scaled(into + k, vectors + i * dim * total + k, weights[value + i], sum_kind, special[0])
                    else:
                        add(into + k, vectors + i * dim * total + k, sum_kind, special[0])
            value += count
    return NO_ID


@compile_loops
def scatter_bags(
    features: Array,
    units: Array,
    batch: Any,
    rows: Array,
    starts: Array,
    offsets: Array,
    weights: Array,
    workspace: Array,
    tables: Array,
    grad: Any,
    grad_stride: Any,
    total: Any,
    kind: Any,
    special: Any,
) -> None:
    """Add the gradient of every bag, times the weight of the id, to the rows of each of its ids."""
    for u in range(len(units)):
        f = units[u, FEATURE]
        shape = (features[f, COLUMNS], features[f, TERMS], features[f, WIDTH])
        dim = shape[0] * shape[2]
        grads = np.int64(workspace.ctypes.data)
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
                for k in range(0, dim * total, len(special[0]) * total):
                    into = grads + i * dim * total + k
                    clear(into, kind, special[0])
                    add_scaled(into, upstream + k, weights[value] if len(weights) else 1.0, kind, special[0])
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
                special,
            )
