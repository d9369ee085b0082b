"""Lloyd's step in compiled loops: points sorted once into boxes, a pruned exact search, sums in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.clustering.boxes import search
from cce.clustering.compiled_nearest import WIDEST_BOXES, all_centers, new_state
from cce.clustering.distances import Floats, padded
from cce.clustering.groups import sort_points
from cce.clustering.guesses import guess_nearest
from cce.clustering.sums import assigned, moved_distances
from cce.clustering.wide_lloyd import WideLloyd
from cce.compiled import parallel_for

if TYPE_CHECKING:
    from torch import Tensor

    from cce.clustering.lloyd import Assigned, Lloyd

PARENTS_IN_TASK = 16
MARGIN = 1.25  # of the search: centroids this much farther than needed are watched, so that gaps last longer


def compiled_lloyd(points: Tensor, weights: Tensor | None) -> Lloyd:
    """Return the compiled step that is best for points of this width."""
    return BoxLloyd(points, weights) if points.shape[1] <= WIDEST_BOXES else WideLloyd(points, weights)


class BoxLloyd:
    """Lloyd's step for CPU points of few dimensions, which it holds sorted."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        order, taken, self.groups = sort_points(padded(points.numpy()))
        self.state = new_state(taken)
        self.points = torch.from_numpy(taken)[:, : points.shape[1]]
        self.weights = points.new_ones(len(order)) if weights is None else weights[torch.from_numpy(order).long()]
        self.last: Floats | None = None

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        self._search(padded(centroids.numpy()))
        nearest, squares = self.state.nearest, self.state.squares
        return assigned(self.points.numpy(), self.weights, nearest, squares, centroids.shape[0])

    def _search(self, rows: Floats) -> None:
        centers = all_centers(rows, None if self.last is None else moved_distances(self.last, rows))
        is_first, self.last = self.last is None, rows.copy()
        state, groups, dims = self.state, self.groups, (0,) * rows.shape[1]
        num_parents = len(groups.parents.low)

        def task(index: int) -> None:
            first, last = index * PARENTS_IN_TASK, min((index + 1) * PARENTS_IN_TASK, num_parents)
            if is_first:
                guess_nearest(state, groups, centers, first, last, dims)
            search(state, centers, groups, first, last, MARGIN, dims)

        parallel_for(task, -(-num_parents // PARENTS_IN_TASK))
