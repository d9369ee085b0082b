"""What points and weights are rejected, and in which words."""

import math

import pytest
import torch

from cce.clustering.kmeans import check_same_space, checked_points, checked_weights


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_points_that_are_not_finite_are_rejected_with_their_number(bad):
    points = torch.zeros(10, 3)
    points[4, 1] = points[4, 2] = points[7, 0] = bad
    with pytest.raises(ValueError, match="points must be finite, got NaN or inf in 2 of 10 rows"):
        checked_points(points)


def test_points_whose_squares_would_overflow_are_rejected():
    with pytest.raises(ValueError, match=r"init must lie within ±1e\+18, got 1e\+19"):
        checked_points(torch.tensor([[1e19]]), "init")


def test_points_of_other_shapes_and_types_are_rejected():
    with pytest.raises(ValueError, match=r"points must have shape \(n, width\) with width >= 1, got \(4,\)"):
        checked_points(torch.zeros(4))
    with pytest.raises(TypeError, match=r"points must be a floating-point tensor, got torch\.int64"):
        checked_points(torch.zeros(4, 2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("given", "expected"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_points_become_contiguous_rows_of_float32_unless_they_are_float64(given, expected):
    rows = checked_points(torch.randn(3, 5).to(getattr(torch, given)).t())
    assert rows.dtype == getattr(torch, expected)
    assert rows.is_contiguous()


def test_centroids_of_another_device_are_rejected():
    with pytest.raises(ValueError, match="init must be on the device of points, cpu, got meta"):
        check_same_space(torch.zeros(2, 3), torch.zeros(2, 3, device="meta"), "init")


def test_weights_must_be_a_finite_mass():
    points = torch.zeros(3, 2)
    assert checked_weights(None, points) is None
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(3,\), one per point, got \(2,\)"):
        checked_weights(torch.ones(2), points)
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        checked_weights(torch.tensor([1.0, -1.0, 0.0]), points)
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        checked_weights(torch.tensor([1.0, math.nan, 0.0]), points)
    with pytest.raises(ValueError, match="sample_weight must not all be zero"):
        checked_weights(torch.zeros(3), points)
