"""Nearest centroids of points that bring no guess, in compiled loops."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cce.clustering.boxes import Centers, State, search
from cce.clustering.distances import LANES, Floats, Ints, packed, padded
from cce.clustering.groups import sort_into_leaves, sort_points
from cce.clustering.guesses import guess_nearest
from cce.clustering.wide import wide_nearest
from cce.compiled import parallel_for

WIDEST_BOXES = 8  # beyond, a matrix product serves better
LARGEST_BLOCK = 1 << 20  # points sorted together: more make smaller boxes, but take memory
SMALLEST_BLOCK = 1 << 16


def compiled_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids."""
    rows = points.numpy()
    if rows.shape[1] > WIDEST_BOXES:
        return torch.from_numpy(wide_nearest(rows, centroids.numpy()).nearest).long()
    centers = all_centers(padded(centroids.numpy()))
    nearest = np.empty(len(rows), np.int64)
    size = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, -(-len(rows) // torch.get_num_threads())))

    def task(index: int) -> None:
        part = slice(index * size, min((index + 1) * size, len(rows)))
        nearest[part] = _nearest_of_block(padded(rows[part]), centers)

    parallel_for(task, -(-len(rows) // size))
    return torch.from_numpy(nearest)


def all_centers(rows: Floats, moves: Floats | None = None) -> Centers:
    """Return what the search asks of the centroids `rows`, already padded."""
    moves = np.zeros(len(rows), np.float32) if moves is None else moves
    order, _, _ = sort_into_leaves(rows, LANES, LANES)
    ids = np.full(-(-len(rows) // LANES) * LANES, order[-1], dtype=np.int32)
    ids[: len(rows)] = order
    return Centers(rows, packed(rows[order]), ids, moves)


def new_state(rows: Floats) -> State:
    """Return the state of points of which nothing is known."""
    num_rows = len(rows)
    return State(rows, np.zeros(num_rows, np.int32), np.empty(num_rows, np.float32), np.zeros(num_rows, np.float32))


def _nearest_of_block(rows: Floats, centers: Centers) -> Ints:
    order, taken, groups = sort_points(rows)
    state, dims = new_state(taken), (0,) * rows.shape[1]
    guess_nearest(state, groups, centers, 0, len(groups.parents.low), dims)
    search(state, centers, groups, 0, len(groups.parents.low), 1.0, dims)
    nearest = np.empty_like(order)
    nearest[order] = state.nearest
    return nearest
