"""A first guess at the nearest centroid of points that have none.

The centroid nearest to the middle of a leaf leads to its block, sixteen centroids that lie close together; each point of
the leaf takes the nearest of those sixteen.
"""

from __future__ import annotations

import numpy as np

from cce.clustering.boxes import Centers, State
from cce.clustering.distances import LANES, LARGEST_BITS, Dims, Floats, smallest_bits_of_block
from cce.clustering.groups import Boxes
from cce.compiled import compile_loops


@compile_loops
def guess_nearest(state: State, leaves: Boxes, centers: Centers, first: int, last: int, dims: Dims) -> None:
    """Write a guess for every point of the leaves `[first, last)` into `state.nearest`."""
    middle = np.empty((1, leaves.low.shape[1]), np.float32)
    for leaf in range(first, last):
        for d in range(leaves.low.shape[1]):
            middle[0, d] = (leaves.low[leaf, d] + leaves.high[leaf, d]) / 2
        block = nearest_block(middle, centers, dims)
        for row in range(leaves.starts[leaf], leaves.starts[leaf + 1]):
            state.nearest[row] = centers.ids[block * LANES + nearly_nearest_lane(state.rows, row, centers, block, dims)]


@compile_loops
def nearest_block(middle: Floats, centers: Centers, dims: Dims) -> int:
    """Return the block that holds the nearest centroid of one row."""
    best, best_block = np.int32(LARGEST_BITS), 0
    for block in range(centers.ids.shape[0] // LANES):
        smallest = smallest_bits_of_block(middle, 0, centers.blocks, centers.ids, block, np.int32(-1), dims)
        if smallest < best:
            best, best_block = smallest, block
    return best_block


@compile_loops
def nearly_nearest_lane(rows: Floats, row: int, centers: Centers, block: int, dims: Dims) -> int:
    """Return the lane of the nearest centroid of a block; the lane is kept in the lowest bits of its own square."""
    offset = np.uint64(block * len(dims) * LANES)
    smallest = np.int32(LARGEST_BITS)
    for lane in range(np.uint64(LANES)):
        total = np.float32(0)
        for d in range(np.uint64(len(dims))):
            difference = rows[row, d] - centers.blocks[offset + np.uint64(LANES) * d + lane]
            total += difference * difference
        smallest = min(smallest, np.int32((np.float32(total).view(np.int32) & np.int32(-LANES)) | np.int32(lane)))
    return smallest & (LANES - 1)
