"""Nearest centroids of points that bring no guess, in compiled loops."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cce.clustering.boxes import Centers, State, search
from cce.clustering.distances import LANES, Floats, Ints, packed, padded
from cce.clustering.groups import measure_groups, sort_into_leaves, take_rows
from cce.clustering.guesses import guess_nearest
from cce.compiled import parallel_for

BLOCK = 1 << 16  # points in one task: their rows and lists stay in the cache


def compiled_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids."""
    rows, centers = points.numpy(), all_centers(padded(centroids.numpy()))
    nearest = np.empty(len(rows), np.int64)

    def task(index: int) -> None:
        part = slice(index * BLOCK, min((index + 1) * BLOCK, len(rows)))
        nearest[part] = _nearest_of_block(padded(rows[part]), centers)

    parallel_for(task, -(-len(rows) // BLOCK))
    return torch.from_numpy(nearest)


def all_centers(rows: Floats, moves: Floats | None = None) -> Centers:
    """Return what the search asks of the centroids `rows`, already padded."""
    moves = np.zeros(len(rows), np.float32) if moves is None else moves
    order, _, _ = sort_into_leaves(rows, LANES, LANES)
    ids = np.full(-(-len(rows) // LANES) * LANES, order[-1], dtype=np.int32)
    ids[: len(rows)] = order
    return Centers(rows, packed(rows[order]), ids, moves)


def leaf_sizes(width: int) -> tuple[int, int]:
    """Return how many points a leaf and a parent may have: boxes of many dimensions part less, so they are larger."""
    return (64, 1024) if width <= 4 else (512, 4096)


def new_state(rows: Floats) -> State:
    """Return the state of points of which nothing is known."""
    num_rows = len(rows)
    return State(rows, np.zeros(num_rows, np.int32), np.empty(num_rows, np.float32), np.zeros(num_rows, np.float32))


def _nearest_of_block(rows: Floats, centers: Centers) -> Ints:
    order, leaves, parents = sort_into_leaves(rows, *leaf_sizes(rows.shape[1]))
    state, dims = new_state(take_rows(rows, order)), (0,) * rows.shape[1]
    groups = measure_groups(state.rows, leaves, parents)
    guess_nearest(state, groups.leaves, centers, 0, len(leaves) - 1, dims)
    search(state, centers, groups, 0, len(parents) - 1, dims)
    nearest = np.empty_like(order)
    nearest[order] = state.nearest
    return nearest
