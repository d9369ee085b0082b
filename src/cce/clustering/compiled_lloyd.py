"""Lloyd's step in compiled loops: points sorted once into boxes, a pruned exact search, sums in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from cce.clustering.boxes import State, search
from cce.clustering.compiled_nearest import all_centers, leaf_sizes, new_state
from cce.clustering.distances import Floats, padded
from cce.clustering.groups import measure_groups, sort_into_leaves, take_rows
from cce.clustering.guesses import guess_nearest
from cce.clustering.lloyd import Assigned
from cce.compiled import compile_loops, parallel_for

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    Doubles = npt.NDArray[np.float64]

PARENTS_IN_TASK = 16
ROWS_IN_PART = 1 << 16  # points summed in one task; fixed, so that sums do not depend on the number of threads
LARGEST_SUMS = 1 << 23  # numbers in the partial sums of all tasks: 64 MB


class CompiledLloyd:
    """Lloyd's step for CPU points of width at most 32."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        rows = padded(points.numpy())
        order, leaves, parents = sort_into_leaves(rows, *leaf_sizes(rows.shape[1]))
        self.state = new_state(take_rows(rows, order))
        self.groups = measure_groups(self.state.rows, leaves, parents)
        self.points = torch.from_numpy(self.state.rows[:, : points.shape[1]])
        self.weights = points.new_ones(len(order)) if weights is None else weights[torch.from_numpy(order).long()]
        self.last: Floats | None = None

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        self._search(padded(centroids.numpy()))
        sums, inertia = self._sums(centroids.shape[0], centroids.shape[1])
        return Assigned(
            torch.from_numpy(sums[:, :-1]),
            torch.from_numpy(sums[:, -1]),
            torch.from_numpy(self.state.nearest),
            torch.from_numpy(self.state.squares),
            inertia,
        )

    def _search(self, rows: Floats) -> None:
        centers = all_centers(rows, None if self.last is None else _moves(self.last, rows))
        is_first, self.last = self.last is None, rows.copy()
        state, groups, dims = self.state, self.groups, (0,) * rows.shape[1]
        num_parents = len(groups.parents.starts) - 1

        def task(index: int) -> None:
            first, last = index * PARENTS_IN_TASK, min((index + 1) * PARENTS_IN_TASK, num_parents)
            if is_first:
                starts = groups.parents.starts
                guess_nearest(state, groups.leaves, centers, starts[first], starts[last], dims)
            search(state, centers, groups, first, last, dims)

        parallel_for(task, -(-num_parents // PARENTS_IN_TASK))

    def _sums(self, num_clusters: int, width: int) -> tuple[Doubles, float]:
        """Return the weighted sum and, in the last column, the weight of every cluster; and the inertia."""
        num_rows = len(self.state.rows)
        num_parts = min(-(-num_rows // ROWS_IN_PART), max(1, LARGEST_SUMS // (num_clusters * (width + 1))))
        bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]
        sums = np.zeros((num_parts, num_clusters, width + 1), np.float64)
        inertias = np.zeros(num_parts, np.float64)
        weights = self.weights.numpy()

        def task(part: int) -> None:
            inertias[part] = sum_rows(self.state, weights, bounds[part], bounds[part + 1], sums[part])

        parallel_for(task, num_parts)
        for part in range(1, num_parts):
            sums[0] += sums[part]
        return sums[0], float(inertias.sum())


def _moves(before: Floats, after: Floats) -> Floats:
    """Return how far each centroid has moved, rounded up."""
    squares = np.square(after.astype(np.float64) - before).sum(1)
    return (np.sqrt(squares) * (1 + 1e-6)).astype(np.float32)


@compile_loops
def sum_rows(state: State, weights: Floats, begin: int, end: int, sums: Doubles) -> float:
    """Add the rows `[begin, end)` and their weights to the sums of their clusters; return their inertia."""
    width = sums.shape[1] - 1
    inertia = 0.0
    for row in range(begin, end):
        cluster = state.nearest[row]
        weight = np.float64(weights[row])
        inertia += weight * state.squares[row]
        for d in range(width):
            sums[cluster, d] += weight * state.rows[row, d]
        sums[cluster, width] += weight
    return inertia
