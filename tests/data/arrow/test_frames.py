"""Rows in memory, in blocks of columns."""

import pyarrow as pa
import pytest

from cce.data.arrow.tables import frame_blocks, record_blocks
from cce.data.preparation.job import Columns, Reading
from helpers.raw_files import bags_of, words_of

COLUMNS = Columns(None, ("user",), ("age",), ("tags",))
READING = Reading(missing=("", "NA"))
VIEWS = {
    "user": pa.array(["a", None, "NA"], pa.string_view()).dictionary_encode(),
    "age": pa.array(["1", " 2.5", "NA"], pa.string_view()),
    "tags": pa.array([["x"], [], None], pa.large_list(pa.string_view())),
}


def read(blocks):
    blocks = list(blocks)
    users = [word for block in blocks for word in words_of(block.words["user"])]
    ages = [age for block in blocks for age in block.numbers["age"].tolist()]
    return users, ages, [bag for block in blocks for bag in bags_of(block.words["tags"])]


def test_columns_of_views_are_read_as_plain_ones():
    users, ages, tags = read(frame_blocks(pa.table(VIEWS), COLUMNS, READING, 2))
    assert (users, ages[:2], tags) == (["a", None, None], [1, 2.5], [["x"], [], []])
    assert ages[2] != ages[2]


def test_a_frame_is_cut_into_blocks():
    table = pa.table({"user": range(5), "age": range(5), "tags": [["x"]] * 5, "more": [None] * 5})
    blocks = list(frame_blocks(pa.concat_tables([table, table]), COLUMNS, READING, 3))
    assert [len(block.lines) for block in blocks] == [3, 2, 3, 2]
    assert read(blocks)[0] == [*range(5), *range(5)]


def test_keys_may_be_missing_in_some_rows_but_not_in_all():
    rows = [{"user": 1, "tags": "x|y"}, {"age": 2, "user": None}]
    assert read(record_blocks(rows, COLUMNS, READING, 1))[::2] == ([1, None], [["x", "y"], []])
    with pytest.raises(ValueError, match=r"^rows must have a column 'age'; it has user, tags\.$"):
        list(record_blocks(rows[:1], COLUMNS, READING, 1))
