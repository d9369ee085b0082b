"""Exact nearest centroids by bounds, across the iterations of k-means (Hamerly, 2010; Elkan, 2003).

Points lie in the leaves of a k-d tree, small boxes of neighbours, and leaves in parents. Every point brings an upper
bound: its distance to some centroid, best its nearest of the last iteration. A centroid farther from a box than all
upper bounds of the points inside cannot be the nearest of any. So the centroids are thinned out once per parent, again
per leaf, laid in shells of growing distance from the leaf, and every point walks the shells until they are farther than
the best it has found.

A point does not walk at all while its lower bound, on the distance to any other centroid, exceeds the distance to its
own. The lower bound falls by the largest move among the centroids near the parent only.

All bounds are loosened by `SLACK`, far above the rounding of float32, so that rounding never discards the true winner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cce.clustering.search.distances import (
    FAR_AWAY,
    LANES,
    LARGEST_BITS,
    Dims,
    Floats,
    Ints,
    packed,
    smallest_bits_of_block,
    square_between,
    square_to_lane,
    squares_to_box,
)
from cce.clustering.search.kd_tree import sort_into_leaves
from cce.compiled import compile_loops

if TYPE_CHECKING:
    from cce.clustering.search.kd_tree import Boxes, KDTree

SLACK = 1e-5  # relative; float32 distances of up to 32 dimensions are off by less than 2e-6
TINY = 1e-18  # absolute, for squares that underflow
NUM_SHELLS = 32


class State(NamedTuple):
    """What is known of the points, which are sorted by leaf."""

    rows: Floats  # (n, width)
    nearest: Ints  # (n,) any centroid in, the nearest out
    squares: Floats  # (n,) squared distance to it
    lower: Floats  # (n,) lower bound on the distance to any other centroid


class Centers(NamedTuple):
    """What is known of the centroids."""

    rows: Floats  # (k, width)
    blocks: Floats  # the same, packed
    ids: Ints  # (k + padding,) 0, 1, …
    moves: Floats  # (k,) how far each has moved since the lower bounds were right


class Near(NamedTuple):
    """Centroids near a box, nearest first: space for all of them, used again for every box."""

    squares: Floats  # (k + padding,) from the box to each candidate
    shells: Ints  # (k + padding,) of each candidate
    kept: Ints  # (k + padding,) candidates that are near
    ids: Ints  # (k + padding,) candidates sorted by shell
    floors: Floats  # (num_blocks,) no centroid of this block, or a later one, is nearer than this to the box
    blocks: Floats  # rows of `ids`, packed
    num_packed: Ints  # (1,) how many of the blocks are packed so far


def new_state(rows: Floats) -> State:
    """Return the state of points of which nothing is known."""
    num_rows = len(rows)
    return State(rows, np.zeros(num_rows, np.int32), np.empty(num_rows, np.float32), np.zeros(num_rows, np.float32))


def all_centers(rows: Floats, moves: Floats | None = None) -> Centers:
    """Return what the search asks of the centroids `rows`, already padded."""
    moves = np.zeros(len(rows), np.float32) if moves is None else moves
    order, _, _ = sort_into_leaves(rows, LANES, LANES)
    ids = np.full(-(-len(rows) // LANES) * LANES, order[-1], dtype=np.int32)
    ids[: len(rows)] = order
    return Centers(rows, packed(rows[order]), ids, moves)


@compile_loops
def new_near(num_centers: int, width: int) -> Near:
    """Return empty lists with space for all centroids."""
    num_blocks = (num_centers + LANES - 1) // LANES
    return Near(
        np.empty(num_blocks * LANES, np.float32),
        np.empty(num_blocks * LANES, np.int32),
        np.empty(num_blocks * LANES, np.int32),
        np.empty(num_blocks * LANES, np.int32),
        np.empty(num_blocks, np.float32),
        np.empty(num_blocks * LANES * width, np.float32),
        np.zeros(1, np.int32),
    )


@compile_loops
def search(state: State, centers: Centers, tree: KDTree, first: int, last: int, margin: float, dims: Dims) -> None:
    """Find the nearest centroids of the points of the parents `[first, last)`.

    A `margin` of 1 looks as far as it must for that; a larger one raises the lower bounds, for later searches.
    """
    num_centers, width = centers.rows.shape
    outer, inner = new_near(num_centers, width), new_near(num_centers, width)
    leaves, parents = tree.leaves, tree.parents
    for parent in range(first, last):
        begin, end = parents.starts[parent], parents.starts[parent + 1]
        farthest = set_upper_bounds(state, centers, leaves.starts[begin], leaves.starts[end], dims)
        reach = np.float32(np.sqrt(farthest) * margin * (1 + 4 * SLACK) + TINY)
        squares_to_box(
            parents.low, parents.high, parent, centers.blocks, (num_centers + LANES - 1) // LANES, outer.squares, dims
        )
        num_near = list_near(outer, centers.ids, num_centers, reach)
        for block in range((num_near + LANES - 1) // LANES):
            pack_block(outer, centers.rows, block, num_near, dims)
        largest_move = find_largest_move(centers, outer, num_near)
        lower_bounds_after_moves(state, leaves.starts[begin], leaves.starts[end], largest_move, reach)
        for leaf in range(begin, end):
            search_leaf(state, centers, leaves, leaf, outer, num_near, inner, dims)


@compile_loops
def set_upper_bounds(state: State, centers: Centers, begin: int, end: int, dims: Dims) -> np.float32:
    """Measure every point's distance to the centroid it brings; return the largest square."""
    farthest = np.float32(0)
    for row in range(np.uint64(begin), np.uint64(end)):
        square = square_between(state.rows, row, centers.rows, state.nearest[row], dims)
        state.squares[row] = square
        farthest = max(farthest, square)
    return farthest


@compile_loops
def find_largest_move(centers: Centers, near: Near, num_near: int) -> np.float32:
    """Return the farthest that any listed centroid has moved."""
    largest = np.float32(0)
    for index in range(np.uint64(num_near)):
        largest = max(largest, centers.moves[np.uint64(near.ids[index])])
    return largest


@compile_loops
def list_near(near: Near, ids: Ints, num_ids: int, reach: np.float32) -> int:
    """List the candidates that are not beyond `reach`, shell by shell around the box; return how many."""
    num_near = int(keep_near(near, num_ids, reach))
    starts = np.zeros(NUM_SHELLS + 2, np.int32)
    for index in range(np.uint64(num_near)):
        starts[np.uint64(near.shells[np.uint64(near.kept[index])]) + np.uint64(1)] += 1
    for shell in range(NUM_SHELLS):
        starts[shell + 1] += starts[shell]
        for block in range((starts[shell] + LANES - 1) // LANES, (starts[shell + 1] + LANES - 1) // LANES):
            near.floors[block] = shell * (reach / NUM_SHELLS) * (1 - SLACK)
    for position in range(np.uint64(num_near)):
        candidate = np.uint64(near.kept[position])
        own_shell = np.uint64(near.shells[candidate])
        near.ids[np.uint64(starts[own_shell])] = ids[candidate]
        starts[own_shell] += 1
    near.num_packed[0] = 0
    return num_near


@compile_loops
def keep_near(near: Near, num_ids: int, reach: np.float32) -> np.uint64:
    """Find the shell of every candidate; keep those not beyond the last one, without branches; return how many."""
    scale, beyond = np.float32(NUM_SHELLS / reach), np.float32(NUM_SHELLS)
    for index in range(np.uint64(num_ids)):
        near.shells[index] = np.int32(min(np.sqrt(near.squares[index]) * scale, beyond))
    num_near = np.uint64(0)
    for index in range(np.uint64(num_ids)):
        near.kept[num_near] = index
        num_near += np.uint64(near.shells[index] < NUM_SHELLS)
    return num_near


@compile_loops
def pack_block(near: Near, rows: Floats, block: int, num_near: int, dims: Dims) -> None:
    """Pack one block of the listed centroids; lanes beyond the list are infinitely far."""
    first = np.uint64(block * LANES)
    for lane in range(np.uint64(LANES)):
        slot = first * np.uint64(len(dims)) + lane
        if first + lane < np.uint64(num_near):
            row = np.uint64(near.ids[first + lane])
            for d in range(np.uint64(len(dims))):
                near.blocks[slot + d * np.uint64(LANES)] = rows[row, d]
        else:
            for d in range(np.uint64(len(dims))):
                near.blocks[slot + d * np.uint64(LANES)] = FAR_AWAY
    near.num_packed[0] = block + 1


@compile_loops
def lower_bounds_after_moves(state: State, begin: int, end: int, largest_move: np.float32, reach: np.float32) -> None:
    """Let the lower bounds of some points hold for the centroids where they now are."""
    for row in range(np.uint64(begin), np.uint64(end)):
        state.lower[row] = min(state.lower[row] - largest_move, reach) * np.float32(1 - SLACK)


@compile_loops
def may_change(state: State, row: int) -> bool:
    """Say whether a centroid other than its own may be the nearest."""
    return not state.lower[row] > np.sqrt(state.squares[row])


@compile_loops
def search_leaf(
    state: State, centers: Centers, leaves: Boxes, leaf: int, outer: Near, num_outer: int, inner: Near, dims: Dims
) -> None:
    """Find the nearest centroids of the points of one leaf that may have a new one."""
    begin, end = leaves.starts[leaf], leaves.starts[leaf + 1]
    farthest = np.float32(-1)
    for row in range(begin, end):
        if may_change(state, row):
            farthest = max(farthest, state.squares[row])
    if farthest < 0:
        return
    reach = np.float32(np.sqrt(farthest) * (1 + 4 * SLACK) + TINY)
    num_blocks = (num_outer + LANES - 1) // LANES
    squares_to_box(leaves.low, leaves.high, leaf, outer.blocks, num_blocks, inner.squares, dims)
    num_near = list_near(inner, outer.ids, num_outer, reach)
    walk_leaf(state, centers.rows, begin, end, inner, num_near, reach, dims)


@compile_loops
def walk_leaf(
    state: State, centers: Floats, begin: int, end: int, near: Near, num_near: int, reach: np.float32, dims: Dims
) -> None:
    """Let every point that may change search the shells, each until they are farther than its best."""
    num_blocks = (num_near + LANES - 1) // LANES
    for row in range(begin, end):
        if not may_change(state, row):
            continue
        best, winner = np.float32(state.squares[row]).view(np.int32), state.nearest[row]
        second = np.int32(LARGEST_BITS)
        limit = np.sqrt(state.squares[row]) * (1 + SLACK) + TINY
        bound = reach * np.float32(1 - SLACK)
        for block in range(num_blocks):
            if near.floors[block] > limit:
                bound = near.floors[block]
                break
            if block >= near.num_packed[0]:
                pack_block(near, centers, block, num_near, dims)
            smallest = smallest_bits_of_block(state.rows, row, near.blocks, near.ids, block, winner, dims)
            if smallest > best:
                second = min(second, smallest)
            else:
                best, second, winner = look_into_block(state.rows, row, near, block, best, second, winner, dims)
                limit = np.sqrt(np.int32(best).view(np.float32)) * (1 + SLACK) + TINY
        state.nearest[row] = winner
        state.squares[row] = np.int32(best).view(np.float32)
        state.lower[row] = min(bound, np.sqrt(np.int32(second).view(np.float32)))


@compile_loops
def look_into_block(
    rows: Floats, row: int, near: Near, block: int, best: np.int32, second: np.int32, winner: np.int32, dims: Dims
) -> tuple[np.int32, np.int32, np.int32]:
    """Return the best and second best squares, as bits, and the winner, after the sixteen lanes of a block."""
    for lane in range(LANES):
        center = near.ids[block * LANES + lane]
        bits = np.float32(square_to_lane(rows, row, near.blocks, block, lane, dims)).view(np.int32)
        if bits < best or (bits == best and center < winner):
            second = best
            best = bits
            winner = center
        elif center != winner:
            second = min(second, bits)
    return best, second, winner
