"""k-means in loops that numba compiles: pruned exact searches, sums in a fixed order, the same bits on any threads.

Points of one dimension are sorted (`search.line`). Points of up to eight lie in the leaves of a k-d tree, and bounds
say which of them need no search (`search.bounds`). Wider points are scored by a matrix product (`search.gemm`). Points
that are searched once, many for each centroid, are filtered a box at a time (`search.filtering`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from cce import compiled
from cce.clustering.backends.base import Assigned, Backend
from cce.clustering.search.bounds import State, all_centers, new_state, search
from cce.clustering.search.distances import padded
from cce.clustering.search.filtering import CELLS_IN_NODE, assign_cells
from cce.clustering.search.gemm import Found, gemm_nearest, measure_all
from cce.clustering.search.initial_bounds import set_initial_bounds
from cce.clustering.search.kd_tree import build_split_tree, sort_into_cells, sort_points
from cce.clustering.search.line import (
    Assignment,
    SortedPoints,
    find_middles,
    search_any,
    search_sorted,
    sort_centers,
)
from cce.compiled import compile_loops, parallel_for

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from cce.clustering.backends.base import Lloyd
    from cce.clustering.progress import Progress
    from cce.clustering.search.bounds import Centers
    from cce.clustering.search.distances import Floats, Ints, Longs

    Doubles = npt.NDArray[np.float64]

WIDEST = 4096
WIDEST_TREE = 8  # beyond, a matrix product serves better
WIDEST_CELLS = 4  # beyond, cells have too many neighbours
MANY_POINTS = 32  # for each centroid: with fewer, cells are too large to have few neighbours
LARGEST_BLOCK = 1 << 20  # points sorted together: more make smaller boxes, but take memory
SMALLEST_BLOCK = 1 << 16
NODES_IN_TASK = 4
PARENTS_IN_TASK = 16
MARGIN = 1.25  # of the search: centroids this much farther than needed are watched, so that lower bounds last longer
SLACK = 1e-5  # relative, far above the rounding of distances
ROWS_IN_PART = 1 << 16  # points summed in one task; fixed, so that sums do not depend on the number of threads
LARGEST_SUMS = 1 << 23  # values in the partial sums of all tasks: 64 MB


def native_lloyd(points: Tensor, weights: Tensor | None, progress: Progress | None = None) -> Lloyd:
    """Return the step that is best for points of this width."""
    del progress  # fast enough to go without
    if points.shape[1] == 1:
        return LineLloyd(points, weights)
    return TreeLloyd(points, weights) if points.shape[1] <= WIDEST_TREE else GemmLloyd(points, weights)


class LineLloyd:
    """Lloyd's step for CPU points of one dimension, which it holds in rising order."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        values, num_points = points.numpy()[:, 0], len(points)
        order = None if weights is None else np.argsort(values, kind="stable")  # equal points have weights of their own
        self.points = torch.from_numpy(np.sort(values) if order is None else values[order])[:, None]
        self.weights = torch.ones(num_points) if weights is None else weights[torch.from_numpy(order)]
        self.nearest, self.squares = np.empty(num_points, np.int32), np.empty(num_points, np.float32)

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        centers = sort_centers(centroids.numpy()[:, 0])
        points = SortedPoints(self.points.numpy()[:, 0], self.weights.numpy())
        bounds = part_bounds(len(self.points), 3 * len(centroids))
        sums = np.zeros((len(bounds) - 1, len(centroids), 3), np.float64)

        def task(part: int) -> None:
            found = Assignment(self.nearest, self.squares, sums[part])
            search_sorted(points, centers, bounds[part], bounds[part + 1], found)

        parallel_for(task, len(sums))
        for part in range(1, len(sums)):
            sums[0] += sums[part]
        whole, nearest, squares = map(torch.from_numpy, (sums[0], self.nearest, self.squares))
        return Assigned(whole[:, :1], whole[:, 1], nearest, squares, float(whole[:, 2].sum()))


class TreeLloyd:
    """Lloyd's step for CPU points of few dimensions, which it holds sorted."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        order, taken, self.tree = sort_points(padded(points.numpy()))
        self.state = new_state(taken)
        self.points = torch.from_numpy(taken)[:, : points.shape[1]]
        self.weights = points.new_ones(len(order)) if weights is None else weights[torch.from_numpy(order).long()]
        self.last: Floats | None = None

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        self._search(padded(centroids.numpy()))
        return sum_clusters(self.points, self.weights, self.state, centroids.shape[0])

    def _search(self, rows: Floats) -> None:
        centers = all_centers(rows, None if self.last is None else moved_distances(self.last, rows))
        is_first, self.last = self.last is None, rows.copy()
        state, tree, dims = self.state, self.tree, (0,) * rows.shape[1]
        num_parents = len(tree.parents.low)

        def task(index: int) -> None:
            first, last = index * PARENTS_IN_TASK, min((index + 1) * PARENTS_IN_TASK, num_parents)
            if is_first:
                set_initial_bounds(state, tree, centers, first, last, dims)
            search(state, centers, tree, first, last, MARGIN, dims)

        parallel_for(task, -(-num_parents // PARENTS_IN_TASK))


class GemmLloyd:
    """Lloyd's step for wide CPU points: only those whose lower bound fell below their distance are searched again."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights
        self.found: Found | None = None
        self.last: Floats | None = None

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        rows, centers = self.points.numpy(), centroids.numpy()
        if self.found is None or self.last is None:
            self.found = gemm_nearest(rows, centers)
        else:
            self._search_again(self.found, rows, centers, moved_distances(self.last, centers))
        self.last = centers.copy()
        return sum_clusters(self.points, self.weights, self.found, centroids.shape[0])

    def _search_again(self, found: Found, rows: Floats, centers: Floats, moves: Floats) -> None:
        measure_all(rows, centers, found.nearest, found.squares)
        np.subtract(found.lower, moves.max(), out=found.lower)
        unsure = np.flatnonzero(~(found.lower * (1 - SLACK) > np.sqrt(found.squares)))
        if len(unsure):
            again = gemm_nearest(rows[unsure], centers)
            for values, new in zip(found, again, strict=True):
                values[unsure] = new


def sum_clusters(points: Tensor, weights: Tensor, found: State | Found, n_clusters: int) -> Assigned:
    """Sum the points of each cluster, part by part, and the parts in their order."""
    rows, nearest, squares = points.numpy(), found.nearest, found.squares
    num_rows, width = rows.shape
    bounds = part_bounds(num_rows, n_clusters * (width + 1))
    num_parts = len(bounds) - 1
    sums = np.zeros((num_parts, n_clusters, width + 1), np.float64)  # the last column holds the weights
    inertias = np.zeros(num_parts, np.float64)
    mass = weights.numpy()

    def task(part: int) -> None:
        inertias[part] = sum_rows(rows, mass, nearest, squares, bounds[part], bounds[part + 1], sums[part])

    parallel_for(task, num_parts)
    for part in range(1, num_parts):
        sums[0] += sums[part]
    whole = torch.from_numpy(sums[0])
    inertia = float(inertias.sum())
    return Assigned(whole[:, :-1], whole[:, -1], torch.from_numpy(nearest), torch.from_numpy(squares), inertia)


def part_bounds(num_rows: int, num_sums: int) -> list[int]:
    """Return where the parts begin that are summed in one task, and the last ends; each has so many sums of its own."""
    num_parts = min(-(-num_rows // ROWS_IN_PART), max(1, LARGEST_SUMS // num_sums))
    return [num_rows * part // num_parts for part in range(num_parts + 1)]


def moved_distances(before: Floats, after: Floats) -> Floats:
    """Return how far each centroid has moved, rounded up."""
    squares = np.square(after.astype(np.float64) - before).sum(1)
    moves: Floats = (np.sqrt(squares) * (1 + 1e-6)).astype(np.float32)
    return moves


@compile_loops
def sum_rows(
    rows: Floats, weights: Floats, nearest: Ints, squares: Floats, begin: int, end: int, sums: Doubles
) -> float:
    """Add the rows `[begin, end)` and their weights to the sums of their clusters; return their inertia."""
    width = sums.shape[1] - 1
    inertia = 0.0
    for row in range(np.uint64(begin), np.uint64(end)):
        cluster = np.uint64(nearest[row])
        weight = np.float64(weights[row])
        inertia += weight * squares[row]
        for d in range(width):
            sums[cluster, d] += weight * rows[row, d]
        sums[cluster, width] += weight
    return inertia


def native_nearest(points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Tensor:
    """Return the `(n,)` int64 indices of the nearest centroids."""
    del progress  # fast enough to go without
    rows, centers = points.numpy(), centroids.numpy()
    if rows.shape[1] > WIDEST_TREE:
        return torch.from_numpy(gemm_nearest(rows, centers).nearest).long()
    nearest = np.empty(len(rows), np.int64)
    if rows.shape[1] == 1:
        _search_line(rows[:, 0], centers[:, 0], nearest)
        return torch.from_numpy(nearest)
    is_dense = min(len(rows), LARGEST_BLOCK) >= MANY_POINTS * len(centers)
    search_all = _search_cells if is_dense and rows.shape[1] <= WIDEST_CELLS else _search_trees
    search_all(rows, padded(centers), nearest)
    return torch.from_numpy(nearest)


def _search_line(values: Floats, centers: Floats, nearest: Longs) -> None:
    """Search points of one dimension, block by block."""
    rising = sort_centers(centers)
    middles = find_middles(rising)

    def task(index: int) -> None:
        last = min((index + 1) * SMALLEST_BLOCK, len(values))
        search_any(values, rising, middles, index * SMALLEST_BLOCK, last, nearest)

    parallel_for(task, -(-len(values) // SMALLEST_BLOCK))


def _search_cells(rows: Floats, centers: Floats, nearest: Longs) -> None:
    """Search many points for each centroid: all in the cells of one tree, block by block."""
    num_blocks = -(-len(rows) // LARGEST_BLOCK)
    if num_blocks > 1:  # as many for every thread
        num_blocks = -(-num_blocks // torch.get_num_threads()) * torch.get_num_threads()
    size = -(-len(rows) // num_blocks)
    tree, columns, dims = build_split_tree(rows, size), np.ascontiguousarray(centers.T), (0,) * centers.shape[1]
    cells_in_task = NODES_IN_TASK * CELLS_IN_NODE

    def task(index: int) -> None:
        part = slice(index * size, min((index + 1) * size, len(rows)))
        cells = sort_into_cells(padded(rows[part]), tree, dims)

        def subtask(first: int) -> None:
            last = min((first + 1) * cells_in_task, len(cells.starts) - 1)
            assign_cells(cells, first * cells_in_task, last, nearest[part], columns, dims)

        parallel_for(subtask, -(-(len(cells.starts) - 1) // cells_in_task))

    parallel_for(task, num_blocks)


def _search_trees(rows: Floats, centers: Floats, nearest: Longs) -> None:
    """Search few points for each centroid: each block in its own tree."""
    size = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, -(-len(rows) // torch.get_num_threads())))
    known = all_centers(centers)

    def task(index: int) -> None:
        part = slice(index * size, min((index + 1) * size, len(rows)))
        _search_block(padded(rows[part]), known, nearest[part])

    parallel_for(task, -(-len(rows) // size))


def _search_block(rows: Floats, centers: Centers, nearest: Longs) -> None:
    order, taken, tree = sort_points(rows)
    state: State = new_state(taken)
    dims = (0,) * rows.shape[1]
    set_initial_bounds(state, tree, centers, 0, len(tree.parents.low), dims)
    search(state, centers, tree, 0, len(tree.parents.low), 1.0, dims)
    nearest[order] = state.nearest


def _why_not(points: Tensor) -> str:
    rule = f"needs compiled loops and CPU points of width <= {WIDEST}"
    if not compiled.available:
        return f"{rule}, but {compiled.why_plain}"
    if points.device.type != "cpu" or points.shape[1] > WIDEST:
        return f"{rule}, got {points.device} points of width {points.shape[1]}"
    return ""


BACKEND = Backend("native", nearest=native_nearest, lloyd=native_lloyd, why_not=_why_not)
