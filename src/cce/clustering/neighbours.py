"""Exact search for nearest centroids that looks only where the triangle inequality allows.

Points that share a guess `a` (an old or a coarse nearest centroid) are searched together. A centroid `c` can beat the best
one found so far for `x` only if `|a c| <= |x a| + best`. So the centroids around `a` are listed once per group, in
shells of growing distance, and every point walks the shells until they are too far (Newling and Fleuret's "exponion",
2016). Across the iterations of k-means, a point is not searched at all while its gap, a lower bound on the distance to any
other centroid, exceeds the distance to its own (Hamerly, 2010); the gap shrinks by the largest move among the listed
centroids only, since those beyond the list cannot matter.

All bounds are loosened by `SLACK`, far above the rounding of float32, so no rounding can discard the true winner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cce.clustering.distances import (
    FAR_AWAY,
    LANES,
    LARGEST_BITS,
    Dims,
    Floats,
    smallest_bits_of_block,
    square_between,
    square_to_lane,
    squares_to_all,
)
from cce.compiled import compile_loops

Ints = npt.NDArray[np.int32]

SLACK = 1e-5  # relative; float32 distances of up to 32 dimensions are off by less than 2e-6
TINY = 1e-18  # absolute, for squares that underflow
NUM_SHELLS = 64


class State(NamedTuple):
    """What is known of the points."""

    rows: Floats  # (n, width)
    order: Ints  # (n,) the points, those of one guess together
    nearest: Ints  # (n,) guess in, nearest centroid out
    squares: Floats  # (n,) squared distance to it
    gaps: Floats  # (n,) lower bound on the distance to any other centroid


class Centers(NamedTuple):
    """What is known of the centroids among which to search."""

    rows: Floats  # (k, width)
    blocks: Floats  # the same, packed
    moves: Floats  # (k,) how far each has moved since `gaps` were right


class Near(NamedTuple):
    """The centroids around one, in shells: room for all of them, used again for every group."""

    squares: Floats  # (k + padding,) from that one to all centroids
    shells: Ints  # (k,) shell of each centroid in `unsorted`
    unsorted: Ints  # (k,)
    ids: Ints  # (k + padding,) sorted by shell
    blocks: Floats  # packed rows of `ids`
    floors: Floats  # (num_blocks,) no centroid of this block, or a later one, is nearer than this


@compile_loops
def search(state: State, centers: Centers, first: int, last: int, dims: Dims) -> None:
    """Find the nearest centroids of the points at positions `[first, last)` of the order."""
    near = new_near(centers.rows.shape[0], len(dims))
    begin = first
    while begin < last:
        guess = state.nearest[state.order[begin]]
        end = begin
        while end < last and state.nearest[state.order[end]] == guess:
            end += 1
        search_group(state, centers, begin, end, guess, near, dims)
        begin = end


@compile_loops
def new_near(num_centers: int, width: int) -> Near:
    """Return empty lists with room for all centroids."""
    num_blocks = (num_centers + LANES - 1) // LANES
    return Near(
        np.empty(num_blocks * LANES, np.float32),
        np.empty(num_centers, np.int32),
        np.empty(num_centers, np.int32),
        np.empty(num_blocks * LANES, np.int32),
        np.empty(num_blocks * LANES * width, np.float32),
        np.empty(num_blocks, np.float32),
    )


@compile_loops
def search_group(state: State, centers: Centers, begin: int, end: int, guess: int, near: Near, dims: Dims) -> None:
    """Find the nearest centroids of the points at positions `[begin, end)`, which share a guess."""
    farthest = np.float32(0)
    for position in range(begin, end):
        row = state.order[position]
        state.squares[row] = square_between(state.rows, row, centers.rows, guess, dims)
        farthest = max(farthest, state.squares[row])
    reach = 2 * np.sqrt(farthest) * (1 + SLACK) + TINY
    squares_to_all(centers.rows, guess, centers.blocks, near.squares.shape[0] // LANES, near.squares, dims)
    num_near, largest_move = list_near(near, centers, guess, reach)
    num_blocks = pack_near(near, centers, num_near, reach, len(dims))
    for position in range(begin, end):
        row = state.order[position]
        own = np.sqrt(state.squares[row])
        gap = state.gaps[row] - largest_move
        if gap * (1 - SLACK) > own:
            state.gaps[row] = min(gap, reach - own)
        else:
            walk(state, near, row, num_blocks, reach, dims)


@compile_loops
def list_near(near: Near, centers: Centers, guess: int, reach: float) -> tuple[int, float]:
    """List the centroids within `reach` of the guess by shell; return how many, and the farthest move among them."""
    limit = np.float32(reach * reach * (1 + SLACK) + TINY * TINY)
    scale = NUM_SHELLS / reach
    starts = np.zeros(NUM_SHELLS + 2, np.int64)
    num_near = 0
    largest_move = np.float32(0)
    for center in range(centers.rows.shape[0]):
        square = near.squares[center]
        if square <= limit and center != guess:
            shell = min(int(np.sqrt(square) * scale), NUM_SHELLS)
            starts[shell + 1] += 1
            near.shells[num_near] = shell
            near.unsorted[num_near] = center
            largest_move = max(largest_move, centers.moves[center])
            num_near += 1
    for shell in range(NUM_SHELLS + 1):
        starts[shell + 1] += starts[shell]
    for index in range(num_near):
        shell = near.shells[index]
        near.ids[starts[shell]] = near.unsorted[index]
        starts[shell] += 1
    return num_near, largest_move


@compile_loops
def pack_near(near: Near, centers: Centers, num_near: int, reach: float, width: int) -> int:
    """Pack the listed centroids in blocks of lanes; return the number of blocks."""
    num_blocks = (num_near + LANES - 1) // LANES
    for block in range(num_blocks):
        shell = int(np.sqrt(near.squares[near.ids[block * LANES]]) * (NUM_SHELLS / reach))
        near.floors[block] = shell * (reach / NUM_SHELLS) * (1 - SLACK)
        for lane in range(LANES):
            index = block * LANES + lane
            for d in range(width):
                value = centers.rows[near.ids[index], d] if index < num_near else np.float32(FAR_AWAY)
                near.blocks[(block * width + d) * LANES + lane] = value
    return num_blocks


@compile_loops
def walk(state: State, near: Near, row: int, num_blocks: int, reach: float, dims: Dims) -> None:
    """Search the shells for one point, which knows its guess and its squared distance to it."""
    own = np.sqrt(state.squares[row])
    best = np.float32(state.squares[row]).view(np.int32)
    second = np.int32(LARGEST_BITS)
    winner = state.nearest[row]
    limit = 2 * own * (1 + SLACK) + TINY
    gap = reach - own
    for block in range(num_blocks):
        if near.floors[block] > limit:
            gap = min(gap, near.floors[block] - own)
            break
        smallest = smallest_bits_of_block(state.rows, row, near.blocks, block, dims)
        if smallest > best:
            second = min(second, smallest)
            continue
        for lane in range(LANES):
            bits = np.float32(square_to_lane(state.rows, row, near.blocks, block, lane, dims)).view(np.int32)
            if bits < best or (bits == best and near.ids[block * LANES + lane] < winner):
                second = best
                best = bits
                winner = near.ids[block * LANES + lane]
            else:
                second = min(second, bits)
        limit = (own + np.sqrt(np.int32(best).view(np.float32))) * (1 + SLACK) + TINY
    state.nearest[row] = winner
    state.squares[row] = np.int32(best).view(np.float32)
    state.gaps[row] = min(gap, np.sqrt(np.int32(second).view(np.float32)))


@compile_loops
def sort_by_cluster(nearest: Ints, starts: npt.NDArray[np.int64], order: Ints) -> None:
    """Write the points into `order` cluster by cluster, and within a cluster as they come."""
    for row in range(nearest.shape[0]):
        starts[nearest[row] + 1] += 1
    for cluster in range(starts.shape[0] - 1):
        starts[cluster + 1] += starts[cluster]
    for row in range(nearest.shape[0]):
        cluster = nearest[row]
        order[starts[cluster]] = row
        starts[cluster] += 1
