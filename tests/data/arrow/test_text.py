"""Text into columns, with bad lines by number."""

import math

from cce.data.arrow.tables import parse_text
from cce.data.preparation.job import Columns, Reading
from helpers.raw_files import bags_of, words_of

COLUMNS = Columns("y", ("a", "b"), ("x",), multi_hot=("t",))
READING = Reading(names=("y", "x", "a", "b", "t"), delimiter=",")


def test_text_becomes_columns():
    raw = parse_text(b"1,2.5,u,,p|q\n0,,v,7,\n1,-3,u,7,|q\n", COLUMNS, READING)
    assert raw.numbers["y"].tolist() == [1, 0, 1]
    assert [None if math.isnan(x) else x for x in raw.numbers["x"].tolist()] == [2.5, None, -3]
    assert words_of(raw.words["a"]) == ["u", "v", "u"]
    assert words_of(raw.words["b"]) == [None, "7", "7"]
    assert bags_of(raw.words["t"]) == [["p", "q"], [], ["q"]]
    assert (raw.num_lines, raw.bad, raw.lines.tolist()) == (3, [], [0, 1, 2])


def test_bad_lines_are_told_by_number_and_the_others_stay():
    text = b"1,2,u,w,p\n1,2\n1,2,u\nzero,2,u,w,p\n0,many,u,w,p\n0,2,v,w,p,q\n0,3,v,w,p\n"
    raw = parse_text(text, COLUMNS, READING)
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
    raw = parse_text(b"1::u\n0::v\n", columns, Reading(names=("y", "a"), delimiter="::"))
    assert words_of(raw.words["a"]) == ["u", "v"]
    raw = parse_text(b'1,"u,w"\n', columns, Reading(names=("y", "a"), delimiter=",", quoted=True))
    assert words_of(raw.words["a"]) == ["u,w"]
    raw = parse_text(b'1,"u\n', columns, Reading(names=("y", "a"), delimiter=","))
    assert words_of(raw.words["a"]) == ['"u']


def test_words_for_missing_values_are_missing():
    reading = Reading(names=READING.names, delimiter=",", missing=("", "NA"))
    raw = parse_text(b"1,NA,NA,NA,NA|p\n", COLUMNS, reading)
    assert math.isnan(raw.numbers["x"][0])
    assert words_of(raw.words["a"]) == [None]
    assert bags_of(raw.words["t"]) == [["p"]]


def test_lines_that_are_no_text_are_bad():
    text = "1,2,u,w,p\n1,2,é,w,p\n".encode() + b"1,2,\xe9,w,p\n1,2,\0,w,p\n1,x,\xff,w,p\n0,2,v,w,p\n"
    raw = parse_text(text, COLUMNS, READING)
    assert sorted(raw.bad) == [
        (2, "a line must be UTF-8, got the byte 0xe9"),
        (3, "a line must be text, got the byte 0x00"),
        (4, "a line must be UTF-8, got the byte 0xff"),
    ]
    assert raw.lines.tolist() == [0, 1, 5]
    assert words_of(raw.words["a"]) == ["u", "é", "v"]


def test_a_column_may_be_a_number_and_a_word():
    columns = Columns("y", ("a",), user="a")
    reading = Reading(names=("y", "a"), delimiter=",")
    raw = parse_text(b"1,07\n0,x\n0,8\n", columns, reading)
    assert raw.bad == [(1, "a must be a number, got 'x'")]
    assert (words_of(raw.words["a"]), raw.numbers["a"].tolist()) == (["07", "8"], [7, 8])
