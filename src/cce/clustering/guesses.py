"""A first guess at the nearest centroid of points that have none: that of the middle of their leaf."""

from __future__ import annotations

import numpy as np

from cce.clustering.boxes import Centers
from cce.clustering.distances import LANES, LARGEST_BITS, Dims, Floats, Ints, smallest_bits_of_block, square_to_lane
from cce.clustering.groups import Boxes
from cce.compiled import compile_loops


@compile_loops
def guess_nearest(nearest: Ints, leaves: Boxes, centers: Centers, first: int, last: int, dims: Dims) -> None:
    """Write a guess for every point of the leaves `[first, last)` into `nearest`."""
    middle = np.empty((1, leaves.low.shape[1]), np.float32)
    for leaf in range(first, last):
        for d in range(leaves.low.shape[1]):
            middle[0, d] = (leaves.low[leaf, d] + leaves.high[leaf, d]) / 2
        guess = nearest_of_all(middle, 0, centers, dims)
        for row in range(leaves.starts[leaf], leaves.starts[leaf + 1]):
            nearest[row] = guess


@compile_loops
def nearest_of_all(rows: Floats, row: int, centers: Centers, dims: Dims) -> int:
    """Return the nearest centroid of one row, having looked at all."""
    best, best_block = np.int32(LARGEST_BITS), 0
    for block in range((centers.rows.shape[0] + LANES - 1) // LANES):
        smallest = smallest_bits_of_block(rows, row, centers.blocks, centers.ids, block, np.int32(-1), dims)
        if smallest < best:
            best, best_block = smallest, block
    for lane in range(LANES):
        square = square_to_lane(rows, row, centers.blocks, best_block, lane, dims)
        if np.float32(square).view(np.int32) == best:
            return best_block * LANES + lane
    return 0
