"""The door to pyarrow: text and Parquet into columns, bad lines by number, counts and vocabularies."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.data import arrow
from cce.data.arrow import Words
from cce.data.spec import Columns, Reading
from helpers.raw_files import vocabulary_of

COLUMNS = Columns("y", ("a", "b"), ("x",), multi_hot=("t",))
READING = Reading(names=("y", "x", "a", "b", "t"), delimiter=",")


def words_of(column):
    values = column.values.to_pylist()
    return [None if index < 0 else values[index] for index in column.indices.tolist()]


def bags_of(column):
    words = iter(words_of(column))
    return [[next(words) for _ in range(length)] for length in column.lengths.tolist()]


def test_text_becomes_columns():
    raw = arrow.parse_text(b"1,2.5,u,,p|q\n0,,v,7,\n1,-3,u,7,|q\n", COLUMNS, READING)
    assert raw.numbers["y"].tolist() == [1, 0, 1]
    assert [None if math.isnan(x) else x for x in raw.numbers["x"].tolist()] == [2.5, None, -3]
    assert words_of(raw.words["a"]) == ["u", "v", "u"]
    assert words_of(raw.words["b"]) == [None, "7", "7"]
    assert bags_of(raw.words["t"]) == [["p", "q"], [], ["q"]]
    assert (raw.num_lines, raw.bad, raw.lines.tolist()) == (3, [], [0, 1, 2])


def test_bad_lines_are_told_by_number_and_the_others_stay():
    text = b"1,2,u,w,p\n1,2\n1,2,u\nzero,2,u,w,p\n0,many,u,w,p\n0,2,v,w,p,q\n0,3,v,w,p\n"
    raw = arrow.parse_text(text, COLUMNS, READING)
    assert sorted(raw.bad) == [
        (1, "expected 5 columns, got 2"),
        (2, "expected 5 columns, got 3"),
        (3, "y must be a number, got 'zero'"),
        (4, "x must be a number, got 'many'"),
        (5, "expected 5 columns, got 6"),
    ]
    assert raw.lines.tolist() == [0, 6]
    assert raw.num_lines == 7
    assert raw.numbers["x"].tolist() == [2, 3]
    assert words_of(raw.words["a"]) == ["u", "v"]


def test_a_long_delimiter_and_quotes_are_understood():
    columns = Columns("y", ("a",))
    raw = arrow.parse_text(b"1::u\n0::v\n", columns, Reading(names=("y", "a"), delimiter="::"))
    assert words_of(raw.words["a"]) == ["u", "v"]
    raw = arrow.parse_text(b'1,"u,w"\n', columns, Reading(names=("y", "a"), delimiter=",", quoted=True))
    assert words_of(raw.words["a"]) == ["u,w"]
    raw = arrow.parse_text(b'1,"u\n', columns, Reading(names=("y", "a"), delimiter=","))
    assert words_of(raw.words["a"]) == ['"u']


def test_words_for_missing_values_are_missing():
    reading = Reading(names=READING.names, delimiter=",", missing=("", "NA"))
    raw = arrow.parse_text(b"1,NA,NA,NA,NA|p\n", COLUMNS, reading)
    assert math.isnan(raw.numbers["x"][0])
    assert words_of(raw.words["a"]) == [None]
    assert bags_of(raw.words["t"]) == [["p"]]


def test_keeping_rows_keeps_their_bags():
    raw = arrow.parse_text(b"1,1,u,w,p|q\n0,2,v,w,r\n1,3,u,w,\n", COLUMNS, READING).keep(np.array([True, False, True]))
    assert bags_of(raw.words["t"]) == [["p", "q"], []]
    assert raw.numbers["x"].tolist() == [1, 3]
    assert raw.lines.tolist() == [0, 2]


def test_hexadecimal_words_are_numbers():
    values = arrow.as_values(["0000000a", "ffffffff", "FF", "68fd1e64"])
    assert arrow.hex_words(values, None).to_pylist() == [10, 2**32 - 1, 255, 0x68FD1E64]
    assert arrow.hex_words(values, 100).to_pylist() == [10, (2**32 - 1) % 100, 55, 0x68FD1E64 % 100]
    assert arrow.hex_words(arrow.as_values([]), None).to_pylist() == []
    with pytest.raises(ValueError, match="must be a hexadecimal word of at most 8 digits, got '0000word'"):
        arrow.hex_words(arrow.as_values(["word"]), None)


@settings(max_examples=50)
@given(st.lists(st.lists(st.text(alphabet="aAé€z0", max_size=2), max_size=30), min_size=1, max_size=4))
def test_counts_are_merged_and_ranked_as_by_hand(blocks):
    pairs = [(arrow.as_values(block), np.ones(len(block), np.int64)) for block in blocks]
    values, counts = arrow.by_falling_count(*arrow.merge_counts(pairs))
    everything = [value for block in blocks for value in block]
    assert counts.tolist() == [everything.count(value) for value in values.to_pylist()]
    named = [value for value in values.to_pylist() if value]
    assert {value: place + 1 for place, value in enumerate(named)} == vocabulary_of(everything)


def test_places_are_minus_one_where_there_is_none():
    vocabulary = arrow.as_values(["b", "a"])
    assert arrow.places(arrow.as_values(["a", "c", "b"]), vocabulary).tolist() == [1, -1, 0]


def test_integers_and_words_together_are_words():
    numbers = arrow.hex_words(arrow.as_values(["1"]), None)
    assert arrow.concatenate([numbers, arrow.as_values(["x"])]).to_pylist() == ["1", "x"]


def test_a_vocabulary_survives_its_file(tmp_path):
    arrow.save_vocabulary(tmp_path / "v.parquet", arrow.as_values(["x", "é"]), np.array([3, 1]))
    values, counts = arrow.load_vocabulary(tmp_path / "v.parquet")
    assert (values.to_pylist(), counts.tolist()) == (["x", "é"], [3, 1])


def test_a_block_survives_its_file(tmp_path):
    word = Words(np.array([1, -1, 0], np.int32), arrow.as_values(["p", "q"]))
    bag = Words(np.array([0, 0, 1], np.int32), arrow.as_values(["r", "s"]), np.array([2, 0, 1]))
    arrow.save_block(tmp_path / "b", {"label": np.array([1.0, 0.0, 1.0])}, {"word a": word, "word t": bag})
    assert arrow.load_numbers(tmp_path / "b", "label").tolist() == [1, 0, 1]
    assert words_of(arrow.load_words(tmp_path / "b", "word a")) == ["q", None, "p"]
    assert bags_of(arrow.load_bags(tmp_path / "b", "word t", 1)) == [["r", "r"], [], ["s"]]


def test_a_damaged_parquet_file_is_told_by_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match=r"x\.parquet must be a whole Parquet file, and it is damaged"):
        arrow.parquet_columns(tmp_path / "x.parquet")
