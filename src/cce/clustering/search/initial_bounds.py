"""Initial upper bounds for points that bring none: a centroid that is near, but need not be the nearest.

The centroid nearest to the middle of a leaf leads to its block, sixteen centroids that lie close together; each point
of the leaf takes the nearest of those sixteen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cce.clustering.search.distances import LANES, LARGEST_BITS, Dims, Floats, Ints, Longs, smallest_bits_of_block
from cce.compiled import compile_loops

if TYPE_CHECKING:
    from cce.clustering.search.bounds import Centers, State
    from cce.clustering.search.kd_tree import Boxes, KDTree


@compile_loops
def set_initial_bounds(state: State, tree: KDTree, centers: Centers, first: int, last: int, dims: Dims) -> None:
    """Write a near centroid for every point of the parents `[first, last)` into `state.nearest`."""
    leaves, parents = tree.leaves, tree.parents
    num_blocks = centers.ids.shape[0] // LANES
    middle = np.empty((1, len(dims)), np.float32)
    all_blocks, near_blocks = np.arange(num_blocks), np.empty(num_blocks, np.int64)
    smallest = np.empty(num_blocks, np.int32)
    for parent in range(first, last):
        radius = find_middle(parents, parent, middle)
        nearest = nearest_block(middle, centers, all_blocks, smallest, dims)
        num_near = keep_blocks(smallest, radius + np.sqrt(np.int32(smallest[nearest]).view(np.float32)), near_blocks)
        for leaf in range(parents.starts[parent], parents.starts[parent + 1]):
            find_middle(leaves, leaf, middle)
            block = nearest_block(middle, centers, near_blocks[:num_near], smallest, dims)
            for row in range(leaves.starts[leaf], leaves.starts[leaf + 1]):
                lane = nearly_nearest_lane(state.rows, row, centers, block, dims)
                state.nearest[row] = centers.ids[block * LANES + lane]


@compile_loops
def find_middle(boxes: Boxes, box: int, middle: Floats) -> float:
    """Write the middle of a box into the one row of `middle`; return the distance from there to a corner."""
    square = np.float32(0)
    for d in range(boxes.low.shape[1]):
        middle[0, d] = (boxes.low[box, d] + boxes.high[box, d]) / 2
        square += (boxes.high[box, d] - middle[0, d]) ** 2
    return float(np.sqrt(square))


@compile_loops
def nearest_block(middle: Floats, centers: Centers, blocks: Longs, smallest: Ints, dims: Dims) -> int:
    """Return that of the `blocks` which holds the nearest centroid; write the smallest square of each, as bits."""
    best, best_block = np.int32(LARGEST_BITS), blocks[0]
    for block in blocks:
        bits = smallest_bits_of_block(middle, 0, centers.blocks, centers.ids, block, np.int32(-1), dims)
        smallest[block] = bits
        if bits < best:
            best, best_block = bits, block
    return int(best_block)


@compile_loops
def keep_blocks(smallest: Ints, reach: float, near_blocks: Longs) -> int:
    """List the blocks that have a centroid within `reach`; return how many."""
    limit, num_near = np.float32(reach * reach * 1.001).view(np.int32), 0
    for block in range(smallest.shape[0]):
        near_blocks[num_near] = block
        num_near += smallest[block] <= limit
    return max(num_near, 1)


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
    return int(smallest & (LANES - 1))
