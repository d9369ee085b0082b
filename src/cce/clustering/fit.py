"""What a k-means fit gives back, whichever backend ran it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class KMeans:
    """Centroids, and how the fit came to them."""

    centroids: Tensor  # (num_clusters, width) float32, on the device of the points
    inertias: tuple[float, ...]  # weighted sum of squared distances before each update, one per iteration
