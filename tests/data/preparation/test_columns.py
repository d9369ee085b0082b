"""What columns mean: roles, order, and what is rejected."""

import pytest

from cce.data.preparation.job import Columns, Reading


def test_columns_are_read_once_each_and_features_keep_their_order():
    columns = Columns("y", ("b", "a"), ("x",), multi_hot=("t",), weight="w", timestamp="x", user="a")
    assert columns.features == ("b", "a", "t")
    assert columns.numbers == {"label": "y", "weight": "w", "timestamp": "x", "user": "a"}
    assert columns.used == ("y", "w", "x", "a", "b", "t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, r"keep must lie in \(0, 1\], got 0"),
        ({"keep": 1.5}, r"keep must lie in \(0, 1\], got 1\.5"),
        ({"sample": "some"}, "sample must be one of all, rows, negatives; got 'some'"),
        ({"modulus": 0}, r"modulus must lie in \[1, 2\*\*32\), got 0"),
    ],
)
def test_impossible_ways_to_read_are_rejected_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        Reading(**options)
