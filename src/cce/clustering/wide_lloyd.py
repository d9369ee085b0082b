"""Lloyd's step for wide points: only those whose gap no longer protects them are searched (Hamerly, 2010)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cce.clustering.sums import assigned, moved_distances
from cce.clustering.wide import Found, measure_all, wide_nearest

if TYPE_CHECKING:
    from torch import Tensor

    from cce.clustering.distances import Floats
    from cce.clustering.lloyd import Assigned

SLACK = 1e-5  # relative, far above the rounding of distances


class WideLloyd:
    """Lloyd's step for CPU points of more dimensions than boxes serve."""

    def __init__(self, points: Tensor, weights: Tensor | None) -> None:
        self.points = points
        self.weights = points.new_ones(points.shape[0]) if weights is None else weights
        self.found: Found | None = None
        self.last: Floats | None = None

    def assign(self, centroids: Tensor) -> Assigned:
        """Find every point's nearest centroid and sum the points of each cluster."""
        rows, centers = self.points.numpy(), centroids.numpy()
        if self.found is None or self.last is None:
            self.found = wide_nearest(rows, centers)
        else:
            self._search_again(self.found, rows, centers, moved_distances(self.last, centers))
        self.last = centers.copy()
        return assigned(rows, self.weights, self.found.nearest, self.found.squares, centroids.shape[0])

    def _search_again(self, found: Found, rows: Floats, centers: Floats, moves: Floats) -> None:
        measure_all(rows, centers, found.nearest, found.squares)
        np.subtract(found.gaps, moves.max(), out=found.gaps)
        unsure = np.flatnonzero(~(found.gaps * (1 - SLACK) > np.sqrt(found.squares)))
        if len(unsure):
            again = wide_nearest(rows[unsure], centers)
            for values, new in zip(found, again, strict=True):
                values[unsure] = new
