"""What is typed for the columns of a table: transforms, all other columns."""

import pytest

from cce.data.sources.table import read_columns

NAMES = ("y", "a", "b", "age", "price", "when", "x:log")


def read(**options):
    return read_columns(NAMES, {"label": "y", **options})


def test_dense_columns_have_transforms():
    columns, reading = read(categorical=("a",), dense=("age", "price:standard"))
    assert (columns.categorical, columns.dense) == (("a",), ("age", "price"))
    assert reading.transforms == (("price", "standard"),)
    assert [reading.transform_of(name) for name in columns.dense] == ["log", "standard"]


def test_a_colon_may_be_part_of_a_name():
    columns, reading = read_columns(
        ("y", "a", "rating:float"), {"label": "y", "categorical": ("a",), "dense": ("rating:float",)}
    )
    assert columns.dense == ("rating:float",)
    assert reading.transforms == ()


def test_all_other_columns_are_categorical_but_those_that_are_dropped():
    columns, _ = read(categorical=("*",), dense=("age:identity",), drop=("price", "x:log"), weight="when")
    assert columns.categorical == ("a", "b")
    assert read(categorical=("*",), timestamp="when", multi_hot=("b",))[0].categorical == (
        "a",
        "age",
        "price",
        "x:log",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dense": ("age:cube",)}, r"dense must be NAME or NAME:log\|standard\|identity, got 'age:cube'"),
        ({"drop": ("b",)}, r"drop goes with categorical '\*', which takes all other columns; got 'b'"),
        ({"categorical": ("*",), "drop": ("c",)}, "drop must name columns of the file, y, a, b, .*; got 'c'"),
        ({"max_length": 0}, r"max_length must lie in \[1, 2\*\*31\), got 0"),
    ],
)
def test_what_cannot_be_is_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        read(**({"categorical": ("a",)} | options))
