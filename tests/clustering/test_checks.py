"""What points and weights are rejected, and in which words."""

import math

import pytest
import torch

from cce.clustering.kmeans import check_same_space, checked_points


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_points_that_are_not_finite_are_rejected_with_their_number(bad):
    points = torch.zeros(10, 3)
    points[4, 1] = points[4, 2] = points[7, 0] = bad
    with pytest.raises(ValueError, match="points must be finite, got NaN or inf in 2 of 10 rows"):
        checked_points(points)


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
