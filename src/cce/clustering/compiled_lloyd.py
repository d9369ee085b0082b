"""Lloyd's step in compiled loops: points sorted by cluster, pruned exact search, sums in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from cce.clustering.compiled_nearest import search_all
from cce.clustering.distances import Dims, Floats, packed, padded
from cce.clustering.lloyd import Assigned
from cce.clustering.neighbours import Centers, State, search, sort_by_cluster
from cce.compiled import compile_loops, parallel_for

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    Doubles = npt.NDArray[np.float64]

CHUNK = 1 << 14  # points in one task; fixed, so that sums do not depend on the number of threads


class CompiledLloyd:
    """Lloyd's step for CPU points of width at most 32."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights
        self.state: State | None = None
        self.last: Floats | None = None

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        rows = padded(centroids.numpy())
        if self.state is None or self.last is None:
            self._begin(rows)
        else:
            self._search(self.state, rows, self.last)
        self.last = rows.copy()
        assert self.state is not None
        return self._summed(self.state, centroids)

    def _begin(self, rows: Floats) -> None:
        """Search without guesses, then put the points of one cluster side by side in memory, for good."""
        points = padded(self.points.numpy())
        nearest, squares = search_all(points, rows)
        order = np.empty_like(nearest)
        sort_by_cluster(nearest, np.zeros(rows.shape[0] + 1, np.int64), order)
        self.points = self.points[torch.from_numpy(order).long()]
        self.weights = self.weights[torch.from_numpy(order).long()]
        positions = np.arange(len(order), dtype=np.int32)
        gaps = np.zeros(len(order), np.float32)
        self.state = State(padded(self.points.numpy()), positions, nearest[order], squares[order], gaps)

    def _search(self, state: State, rows: Floats, last: Floats) -> None:
        moves = np.sqrt(np.square(rows.astype(np.float64) - last).sum(1)) * (1 + 1e-6)
        centers = Centers(rows, packed(rows), moves.astype(np.float32))
        dims = (0,) * rows.shape[1]
        num_points = len(state.order)

        def task(index: int) -> None:
            search(state, centers, index * CHUNK, min((index + 1) * CHUNK, num_points), dims)

        parallel_for(task, -(-num_points // CHUNK))

    def _summed(self, state: State, centroids: Tensor) -> Assigned:
        num_clusters, width = centroids.shape
        starts = np.zeros(num_clusters + 1, np.int64)
        sort_by_cluster(state.nearest, starts, state.order)
        num_chunks = -(-len(state.order) // CHUNK)
        sums = np.zeros((num_clusters, width + 1), np.float64)
        heads = np.zeros((num_chunks, width + 1), np.float64)
        inertias = np.zeros(num_chunks, np.float64)
        weights = self.weights.numpy()

        def task(index: int) -> None:
            sum_chunk(state, weights, index, sums, heads, inertias)

        parallel_for(task, num_chunks)
        for index in range(1, num_chunks):
            sums[state.nearest[state.order[index * CHUNK]]] += heads[index]
        return Assigned(
            torch.from_numpy(sums[:, :width]),
            torch.from_numpy(sums[:, width]),
            torch.from_numpy(state.nearest),
            torch.from_numpy(state.squares),
            float(inertias.sum()),
        )


@compile_loops
def sum_chunk(state: State, weights: Floats, index: int, sums: Doubles, heads: Doubles, inertias: Doubles) -> None:
    """Sum one chunk of the sorted points: into `heads` while the cluster began in an earlier chunk, else into `sums`."""
    begin = index * CHUNK
    end = min(begin + CHUNK, state.order.shape[0])
    width = sums.shape[1] - 1
    before = state.nearest[state.order[begin - 1]] if begin > 0 else -1
    inertia = 0.0
    for position in range(begin, end):
        row = state.order[position]
        cluster = state.nearest[row]
        weight = np.float64(weights[row])
        inertia += weight * state.squares[row]
        if cluster == before:
            for d in range(width):
                heads[index, d] += weight * state.rows[row, d]
            heads[index, width] += weight
        else:
            for d in range(width):
                sums[cluster, d] += weight * state.rows[row, d]
            sums[cluster, width] += weight
    inertias[index] = inertia
