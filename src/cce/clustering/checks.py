"""What this package asks of points, centroids and weights."""

from __future__ import annotations

import torch
from torch import Tensor

from cce.checks import check_type

LARGEST = 1e18  # the square of a difference of larger values may overflow float32


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
            _reject_rows(rows, name)
    return rows


def _reject_rows(rows: Tensor, name: str) -> None:
    num_bad = int((~rows.isfinite()).any(1).sum())
    if num_bad:
        raise ValueError(f"{name} must be finite, got NaN or inf in {num_bad} of {rows.shape[0]} rows.")
    raise ValueError(f"{name} must lie within ±{LARGEST:g}, got {rows.abs().max().item():g}.")


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
