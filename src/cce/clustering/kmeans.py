"""k-means by Lloyd's algorithm (1957), and the nearest centroid of every point: exact, ties to the lower index.

Points may have weights, empty clusters move to badly served points, and the same seed gives the same bits on any number
of threads. A fit begins at points drawn at random, at k-means++ (Arthur and Vassilvitskii, 2007), or at given
centroids: those of the last fit make a warm start. How points find their centroids is a backend's affair.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cce.checks import check_choice, check_flag, check_number, check_range, check_type
from cce.clustering.backends import BACKENDS, Assigned, KMeans, Lloyd, choose_backend
from cce.clustering.sampling import draw_weighted, sample_ids
from cce.indexing import check_generator

LARGEST = 1e18  # the square of a difference of larger values may overflow float32
INITS = ("random", "k-means++")
SPREAD_OVER, FEW_POINTS = 8, 1 << 14  # points that k-means++ chooses from, for each cluster and at least


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of k-means; the defaults are the paper's.

    tol: k-means ends when an iteration lowers the inertia by no more than this share of it.
    """

    max_iter: int = 50  # paper, "K-means"
    points_per_row: int = 256  # paper: at most 256 sampled ids for each centroid
    tol: float = 0.0
    init: str = "random"
    weighted: bool = False  # k-means weighs a sampled id by how often it occurs
    backend: str = "auto"
    block_size: int = 1 << 18  # ids encoded at a time, at most

    def __post_init__(self) -> None:
        check_range("max_iter", self.max_iter, 1, 2**31)
        check_number("tol", self.tol)
        check_range("points_per_row", self.points_per_row, 1, 2**31)
        check_range("block_size", self.block_size, 1, 2**31)
        check_flag("weighted", self.weighted)
        check_choice("init", self.init, INITS)
        check_choice("backend", self.backend, ("auto", *BACKENDS))


def checked_settings(settings: ClusterSettings | None) -> ClusterSettings:
    """`settings`, or the paper's; reject anything else, such as a dictionary."""
    if settings is None:
        return ClusterSettings()
    check_type("settings", settings, ClusterSettings, "ClusterSettings")
    return settings


def kmeans(
    points: Tensor,
    n_clusters: int,
    *,
    init: str | Tensor = "random",
    sample_weight: Tensor | None = None,
    max_iter: int = 50,  # paper, "K-means"
    tol: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str = "auto",
) -> KMeans:
    """Cluster `points`, `(n, width)`, around `n_clusters` centroids.

    init: "random" (different points, drawn by weight), "k-means++", or `(n_clusters, width)` centroids to start from.
    sample_weight: a point of weight `w` counts as `w` equal points.
    max_iter, tol: the fit ends after max_iter iterations, when nothing changes, or if an iteration lowers the inertia
        by no more than `tol` times itself.
    backend: a name of `BACKENDS`, or "auto": compiled loops, or plain torch for few points and on a GPU.
    """
    rows = checked_points(points)
    weights = checked_weights(sample_weight, rows)
    if rows.shape[0] == 0:
        raise ValueError("points must have at least one row, got 0.")
    check_range("n_clusters", n_clusters, 1, 2**31)
    check_range("max_iter", max_iter, 0, 2**31)
    check_number("tol", tol)
    check_generator(generator)
    chosen = choose_backend(backend, rows, n_clusters)
    centroids = _initial_centroids(rows, n_clusters, init, weights, generator)
    if max_iter == 0:
        return KMeans(centroids, ())
    if chosen.fit is not None:
        return chosen.fit(rows, centroids, sample_weight=weights, max_iter=max_iter, tol=tol)
    assert chosen.lloyd is not None  # a backend has the one or the other
    return _iterate(chosen.lloyd(rows, weights), centroids, max_iter, tol)


def nearest_centroid(points: Tensor, centroids: Tensor, *, backend: str = "auto") -> Tensor:
    """Return the index of the nearest centroid of every point: `(n, width), (k, width) → (n,)` int64.

    "torch" and "native" give what the definition says (see `backends.torch`); "faiss" uses another formula for the
    distance, so near ties may fall differently there.
    """
    rows = checked_points(points)
    centers = checked_points(centroids, "centroids")
    check_same_space(rows, centers, "centroids")
    if centers.shape[0] == 0:
        raise ValueError("centroids must have at least one row, got 0.")
    rows, centers = (each.to(torch.promote_types(rows.dtype, centers.dtype)) for each in (rows, centers))
    chosen = choose_backend(backend, rows, centers.shape[0])
    if rows.shape[0] == 0:
        return torch.empty(0, dtype=torch.int64, device=rows.device)
    return chosen.nearest(rows, centers)


def _iterate(lloyd: Lloyd, centroids: Tensor, max_iter: int, tol: float) -> KMeans:
    inertias: list[float] = []
    for _ in range(max_iter):
        assigned = lloyd.assign(centroids)
        inertias.append(assigned.inertia)
        moved = _moved(centroids, assigned, lloyd)
        unchanged = torch.equal(moved, centroids)
        centroids = moved
        if unchanged or (tol and len(inertias) > 1 and inertias[-2] - inertias[-1] <= tol * inertias[-2]):
            break
    return KMeans(centroids, tuple(inertias))


def _moved(centroids: Tensor, assigned: Assigned, lloyd: Lloyd) -> Tensor:
    """Return the mean of every cluster; an empty one takes a badly served point from its cluster, if there is one."""
    sums, totals = assigned.sums.clone(), assigned.totals.clone()
    empty = (totals == 0).nonzero().squeeze(1)
    if empty.numel():
        rows = _badly_served(assigned, lloyd.weights, empty.numel())
        empty, mass = empty[: rows.numel()], lloyd.weights[rows].double()
        taken, givers = lloyd.points[rows].double() * mass[:, None], assigned.nearest[rows].long()
        sums.index_add_(0, givers, taken, alpha=-1)
        totals.index_add_(0, givers, mass, alpha=-1)
        sums[empty], totals[empty] = taken, mass
    has_points = totals > 0
    means = sums / totals.masked_fill(~has_points, 1.0)[:, None]
    return torch.where(has_points[:, None], means.to(centroids.dtype), centroids)


def _badly_served(assigned: Assigned, weights: Tensor, num_wanted: int) -> Tensor:
    """Return the worst point of each of the clusters with the largest errors, one point per cluster, worst first.

    One per cluster, because the worst points of all are often copies of one another.
    """
    nearest, errors = assigned.nearest.long(), assigned.squares * weights
    cluster_errors = torch.zeros_like(assigned.totals).index_add_(0, nearest, errors.double())
    worst = torch.zeros_like(assigned.totals, dtype=errors.dtype).scatter_reduce_(0, nearest, errors, "amax")
    candidates = ((errors == worst[nearest]) & (errors > 0)).nonzero().squeeze(1)
    first = torch.full_like(assigned.totals, errors.numel(), dtype=torch.int64)
    first.scatter_reduce_(0, nearest[candidates], candidates, "amin")
    num_found = min(num_wanted, int((worst > 0).sum()))
    clusters = cluster_errors.sort(descending=True, stable=True).indices[:num_found]
    return first[clusters]


def _initial_centroids(
    points: Tensor, n_clusters: int, init: str | Tensor, sample_weight: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Return `(n_clusters, width)` centroids in new memory."""
    if isinstance(init, Tensor):
        return _given(points, n_clusters, init)
    if init == "random":
        rows = sample_ids(points.shape[0], n_clusters, counts=sample_weight, generator=generator)
        again = torch.arange(n_clusters, device="cpu") % rows.numel()  # of fewer points than clusters, some come twice
        return points[rows[again].to(points.device)]
    if init == "k-means++":
        return points[_spread_rows(points, n_clusters, sample_weight, generator)]
    raise ValueError(f"init must be a tensor or one of {', '.join(INITS)}, got {init!r}.")


def _given(points: Tensor, n_clusters: int, init: Tensor) -> Tensor:
    centroids = checked_points(init, "init").to(points.dtype, copy=True)
    check_same_space(points, centroids, "init")
    if centroids.shape[0] != n_clusters:
        raise ValueError(f"init must have n_clusters = {n_clusters} rows, got {centroids.shape[0]}.")
    return centroids


def _spread_rows(
    points: Tensor, n_clusters: int, sample_weight: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Draw each next row in proportion to its weight times its squared distance to the rows drawn before.

    Of many points a sample is drawn first: every row that is drawn takes a pass over them.
    """
    num_points = max(SPREAD_OVER * n_clusters, FEW_POINTS)
    if len(points) > num_points:
        mass = torch.ones(len(points)) if sample_weight is None else sample_weight.cpu()
        drawn, mass = draw_weighted(mass, num_points, generator=generator)
        drawn = drawn.to(points.device)
        return drawn[_spread_rows(points[drawn], n_clusters, mass.to(points), generator)]
    mass = torch.ones(points.shape[0], device=points.device) if sample_weight is None else sample_weight
    draws = torch.rand(n_clusters, dtype=torch.float64, generator=generator, device="cpu").tolist()
    rows = torch.empty(n_clusters, dtype=torch.int64, device=points.device)
    rows[0] = _row_at(mass, draws[0])
    nearest = _squares_to(points, rows[0])
    for index in range(1, n_clusters):
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


# -- what is asked of points, centroids and weights --------------------------------------------------------------------


def checked_points(points: Tensor, name: str = "points") -> Tensor:
    """Return `points` as contiguous `(n, width)`, detached; reject what has no finite distances.

    float64 stays what it is; everything else becomes float32.
    """
    check_type(name, points, Tensor, "a Tensor")
    if not points.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {points.dtype}.")
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"{name} must have shape (n, width) with width >= 1, got {tuple(points.shape)}.")
    rows = points.detach()
    rows = (rows if rows.dtype == torch.float64 else rows.float()).contiguous()
    if rows.numel():
        low, high = (value.item() for value in rows.aminmax())
        if not (low >= -LARGEST and high <= LARGEST):
            num_bad = int((~rows.isfinite()).any(1).sum())
            if num_bad:
                raise ValueError(f"{name} must be finite, got NaN or inf in {num_bad} of {rows.shape[0]} rows.")
            raise ValueError(f"{name} must lie within ±{LARGEST:g}, got {rows.abs().max().item():g}.")
    return rows


def check_same_space(points: Tensor, centroids: Tensor, name: str) -> None:
    """Reject centroids of another width or device than the points."""
    if centroids.shape[1] != points.shape[1]:
        raise ValueError(f"{name} must have the width of points, {points.shape[1]}, got {centroids.shape[1]}.")
    if centroids.device != points.device:
        raise ValueError(f"{name} must be on the device of points, {points.device}, got {centroids.device}.")


def checked_weights(weights: Tensor | None, points: Tensor) -> Tensor | None:
    """Return `weights` with the type and device of the points; reject negative, non-finite or all-zero weights."""
    if weights is None:
        return None
    check_type("sample_weight", weights, Tensor, "a Tensor")
    if weights.shape != points.shape[:1]:
        raise ValueError(
            f"sample_weight must have shape ({points.shape[0]},), one per point, got {tuple(weights.shape)}."
        )
    mass = weights.detach().to(points).contiguous()
    if not bool(mass.isfinite().all()) or bool((mass < 0).any()):
        raise ValueError(
            f"sample_weight must be finite and not negative, got values in [{mass.min():g}, {mass.max():g}]."
        )
    if not bool((mass > 0).any()):
        raise ValueError("sample_weight must not all be zero, got a sum of 0.")
    return mass
