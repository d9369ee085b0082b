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


def test_all_other_columns_are_categorical():
    columns, _ = read(categorical=("*",), dense=("age:identity", "price"), weight="when")
    assert columns.categorical == ("a", "b", "x:log")
    assert read(categorical=("*",), timestamp="when", multi_hot=("b",))[0].categorical == ("a", "age", "price", "x:log")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dense": ("age:cube",)}, r"dense must be NAME or NAME:log\|standard\|identity, got 'age:cube'")],
)
def test_what_cannot_be_is_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        read(**({"categorical": ("a",)} | options))
