"""Where k-means begins: points drawn at random, k-means++ (Arthur and Vassilvitskii, 2007), or centroids given."""

from __future__ import annotations

import torch
from torch import Tensor

from cce.clustering.checks import check_same_space, checked_points
from cce.clustering.sampling import sample_ids

STARTS = ("random", "k-means++")


def starting_centroids(
    points: Tensor,
    num_clusters: int,
    *,
    weights: Tensor | None,
    start: str | Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Return `(num_clusters, width)` centroids of their own memory."""
    if isinstance(start, Tensor):
        return _given(points, num_clusters, start)
    if start == "random":
        return points[_random_rows(points, num_clusters, weights, generator)]
    if start == "k-means++":
        return points[_spread_rows(points, num_clusters, weights, generator)]
    raise ValueError(f"start must be a tensor or one of {', '.join(STARTS)}, got {start!r}.")


def _given(points: Tensor, num_clusters: int, start: Tensor) -> Tensor:
    centroids = checked_points(start, "start").clone()
    check_same_space(points, centroids, "start")
    if centroids.shape[0] != num_clusters:
        raise ValueError(f"start must have num_clusters = {num_clusters} rows, got {centroids.shape[0]}.")
    return centroids


def _random_rows(
    points: Tensor, num_clusters: int, weights: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Draw different rows, by weight; with fewer points than clusters, begin again from the first."""
    rows = sample_ids(points.shape[0], num_clusters, counts=weights, generator=generator)
    return rows[torch.arange(num_clusters, device="cpu") % rows.numel()].to(points.device)


def _spread_rows(
    points: Tensor, num_clusters: int, weights: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Draw each next row in proportion to its weight times its squared distance to the rows drawn before."""
    mass = torch.ones(points.shape[0], device=points.device) if weights is None else weights
    draws = torch.rand(num_clusters, dtype=torch.float64, generator=generator, device="cpu").tolist()
    rows = torch.empty(num_clusters, dtype=torch.int64, device=points.device)
    rows[0] = _row_at(mass, draws[0])
    nearest = _squares_to(points, rows[0])
    for index in range(1, num_clusters):
        error = mass * nearest
        rows[index] = _row_at(error if bool(error.any()) else mass, draws[index])
        nearest = torch.minimum(nearest, _squares_to(points, rows[index]))
    return rows


def _squares_to(points: Tensor, row: Tensor) -> Tensor:
    return (points - points[row]).square_().sum(1)


def _row_at(mass: Tensor, fraction: float) -> Tensor:
    """Return the row at which the running sum of `mass` passes `fraction` of the whole; never one of no mass."""
    running = mass.double().cumsum(0)
    row = torch.searchsorted(running, running[-1:] * fraction, right=True)
    last = torch.searchsorted(running, running[-1:])  # the last row that adds anything
    return torch.minimum(row, last).squeeze(0)
