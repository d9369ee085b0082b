"""Nearest centroids of points that bring no guess, in compiled loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cce.clustering.boxes import Centers, State, search
from cce.clustering.cells import plant_tree, sort_into_cells
from cce.clustering.distances import LANES, Floats, packed, padded
from cce.clustering.groups import sort_into_leaves, sort_points
from cce.clustering.guesses import guess_nearest
from cce.clustering.halves import CELLS_IN_NODE, assign_cells
from cce.clustering.wide import wide_nearest
from cce.compiled import parallel_for

if TYPE_CHECKING:
    from cce.clustering.guesses import Longs

WIDEST_BOXES = 8  # beyond, a matrix product serves better
WIDEST_CELLS = 4  # beyond, cells have too many neighbours
MANY_POINTS = 32  # for each centroid: with fewer, cells are too large to have few neighbours
LARGEST_BLOCK = 1 << 20  # points sorted together: more make smaller boxes, but take memory
SMALLEST_BLOCK = 1 << 16
NODES_IN_TASK = 4


def compiled_nearest(points: Tensor, centroids: Tensor) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids."""
    rows, centers = points.numpy(), centroids.numpy()
    if rows.shape[1] > WIDEST_BOXES:
        return torch.from_numpy(wide_nearest(rows, centers).nearest).long()
    nearest = np.empty(len(rows), np.int64)
    is_dense = min(len(rows), LARGEST_BLOCK) >= MANY_POINTS * len(centers)
    search_all = _search_cells if is_dense and rows.shape[1] <= WIDEST_CELLS else _search_boxes
    search_all(rows, padded(centers), nearest)
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


def _search_cells(rows: Floats, centers: Floats, nearest: Longs) -> None:
    """Search many points for each centroid: all in the cells of one tree, block by block."""
    num_blocks = -(-len(rows) // LARGEST_BLOCK)
    if num_blocks > 1:  # as many for every thread
        num_blocks = -(-num_blocks // torch.get_num_threads()) * torch.get_num_threads()
    size = -(-len(rows) // num_blocks)
    tree, columns, dims = plant_tree(rows, size), np.ascontiguousarray(centers.T), (0,) * centers.shape[1]
    cells_in_task = NODES_IN_TASK * CELLS_IN_NODE

    def task(index: int) -> None:
        part = slice(index * size, min((index + 1) * size, len(rows)))
        cells = sort_into_cells(padded(rows[part]), tree, dims)

        def subtask(first: int) -> None:
            last = min((first + 1) * cells_in_task, len(cells.starts) - 1)
            assign_cells(cells, first * cells_in_task, last, nearest[part], columns, dims)

        parallel_for(subtask, -(-(len(cells.starts) - 1) // cells_in_task))

    parallel_for(task, num_blocks)


def _search_boxes(rows: Floats, centers: Floats, nearest: Longs) -> None:
    """Search few points for each centroid: each block in boxes of its own."""
    size = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, -(-len(rows) // torch.get_num_threads())))
    known = all_centers(centers)

    def task(index: int) -> None:
        part = slice(index * size, min((index + 1) * size, len(rows)))
        _search_block(padded(rows[part]), known, nearest[part])

    parallel_for(task, -(-len(rows) // size))


def _search_block(rows: Floats, centers: Centers, nearest: Longs) -> None:
    order, taken, groups = sort_points(rows)
    state, dims = new_state(taken), (0,) * rows.shape[1]
    guess_nearest(state, groups, centers, 0, len(groups.parents.low), dims)
    search(state, centers, groups, 0, len(groups.parents.low), 1.0, dims)
    nearest[order] = state.nearest
