"""Packed blocks of centroids, and distances to them."""

import numpy as np
import pytest

from cce.clustering.search.distances import (
    LANES,
    packed,
    padded,
    smallest_bits_of_block,
    square_between,
    square_to_lane,
    squares_to_box,
)

DIMS = (0,) * 4


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return rng.standard_normal((37, 4)).astype(np.float32), rng.standard_normal((5, 4)).astype(np.float32)


def test_padding_adds_zeros_up_to_a_compiled_width():
    rows = np.ones((3, 5), np.float32)
    assert padded(rows).shape == (3, 8)
    assert padded(rows).sum() == 15
    wide_enough = np.ones((3, 4), np.float32)
    assert padded(wide_enough) is wide_enough


def test_packing_lays_sixteen_centroids_side_by_side(table):
    centers, _ = table
    blocks = packed(centers).reshape(-1, 4, LANES)
    assert len(blocks) == 3
    assert np.array_equal(blocks.transpose(0, 2, 1).reshape(-1, 4)[:37], centers)


def test_squares_are_sums_over_dimensions_in_their_order(table):
    centers, rows = table
    total = np.float32(0)
    for d in range(4):
        total += (rows[1, d] - centers[20, d]) ** 2
    assert square_between(rows, 1, centers, 20, DIMS) == total
    assert square_to_lane(rows, 1, packed(centers), 1, 4, DIMS) == total


def test_the_smallest_of_a_block_leaves_out_the_known_centroid(table):
    centers, rows = table
    squares = np.square(rows[2] - centers[:16]).sum(1)
    nearest, ids = int(squares.argmin()), np.arange(48, dtype=np.int32)
    for known, expected in ((-1, squares.min()), (nearest, np.delete(squares, nearest).min())):
        bits = smallest_bits_of_block(rows, 2, packed(centers), ids, 0, np.int32(known), DIMS)
        assert np.int32(bits).view(np.float32) == pytest.approx(expected, rel=1e-6)


def test_the_distance_to_a_box_is_zero_inside_and_to_the_face_outside():
    centers = np.array([[0, 0, 0, 0], [3, 0, 0, 0], [3, -4, 0, 0]], np.float32)
    low, high = np.full((1, 4), -1, np.float32), np.full((1, 4), 1, np.float32)
    squares = np.empty(LANES, np.float32)
    squares_to_box(low, high, 0, packed(centers), 1, squares, DIMS)
    assert squares[:3].tolist() == [0.0, 4.0, 13.0]
    assert np.isinf(squares[3:]).all()
