"""Squared distances in compiled loops, many centroids at a time.

Centroids are packed sixteen to a block, dimension by dimension (`packed[block, dimension, lane]`, flat), so that one
vector instruction serves eight of them. `dims` is a tuple whose length is the width: a length that the compiler knows,
so that the loop over dimensions disappears. Indices are unsigned, because numba checks signed ones for being negative,
which would keep the loops from being vectorised. Squares are compared as integers: the bits of floats that are not
negative have the order of the floats, and the smallest integer can be found sixteen lanes at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cce.compiled import compile_loops

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Dims = tuple[int, ...]

LANES = 16
WIDTHS = (4, 8)  # widths that are compiled; others are padded with zeros, which add exactly nothing
FAR_AWAY = 1e30  # coordinate of the lanes that hold no centroid: their squares are infinite
LARGEST_BITS = 0x7FFFFFFF


def padded(rows: Floats) -> Floats:
    """Return `(n, width)` rows as they are, or with zeros up to the next compiled width."""
    width = next(width for width in WIDTHS if width >= rows.shape[1])
    if width == rows.shape[1]:
        return rows
    wider = np.zeros((rows.shape[0], width), dtype=np.float32)
    wider[:, : rows.shape[1]] = rows
    return wider


def packed(centers: Floats) -> Floats:
    """Return `(k, width)` centroids in blocks of lanes, flat."""
    num_blocks = -(-centers.shape[0] // LANES)
    lanes = np.full((num_blocks * LANES, centers.shape[1]), FAR_AWAY, dtype=np.float32)
    lanes[: centers.shape[0]] = centers
    return np.ascontiguousarray(lanes.reshape(num_blocks, LANES, -1).transpose(0, 2, 1)).reshape(-1)


@compile_loops
def square_between(rows: Floats, row: int, centers: Floats, center: int, dims: Dims) -> np.float32:
    """Return the squared distance of a row to a centroid: the definition, in its order."""
    total = np.float32(0)
    for d in range(np.uint64(len(dims))):
        difference = rows[np.uint64(row), d] - centers[np.uint64(center), d]
        total += difference * difference
    return total


@compile_loops
def square_to_lane(rows: Floats, row: int, blocks: Floats, block: int, lane: int, dims: Dims) -> np.float32:
    """Return the squared distance of a row to one lane of a block."""
    offset = np.uint64(block * len(dims) * LANES + lane)
    total = np.float32(0)
    for d in range(np.uint64(len(dims))):
        difference = rows[row, d] - blocks[offset + np.uint64(LANES) * d]
        total += difference * difference
    return total


@compile_loops
def smallest_bits_of_block(
    rows: Floats, row: int, blocks: Floats, ids: Ints, block: int, known: np.int32, dims: Dims
) -> np.int32:
    """Return the bits of the smallest squared distance of a row to the sixteen lanes of a block, but for `known`."""
    offset = np.uint64(block * len(dims) * LANES)
    first = np.uint64(block * LANES)
    smallest = np.int32(LARGEST_BITS)
    for lane in range(np.uint64(LANES)):
        total = np.float32(0)
        for d in range(np.uint64(len(dims))):
            difference = rows[row, d] - blocks[offset + np.uint64(LANES) * d + lane]
            total += difference * difference
        bits = np.float32(total).view(np.int32)
        is_other = np.int32(ids[first + lane] ^ known)  # as a number: a comparison here becomes a branch
        smallest = min(smallest, bits if is_other != 0 else np.int32(LARGEST_BITS))
    return smallest


@compile_loops
def squares_to_box(
    low: Floats, high: Floats, box: int, blocks: Floats, num_blocks: int, squares: Floats, dims: Dims
) -> None:
    """Write the squared distance of every lane of the first `num_blocks` blocks to the box into `squares`."""
    for block in range(np.uint64(num_blocks)):
        offset = block * np.uint64(len(dims) * LANES)
        for lane in range(np.uint64(LANES)):
            total = np.float32(0)
            for d in range(np.uint64(len(dims))):
                value = blocks[offset + np.uint64(LANES) * d + lane]
                outside = max(low[box, d] - value, value - high[box, d], np.float32(0))
                total += outside * outside
            squares[block * np.uint64(LANES) + lane] = total
