"""JSON lines: words, numbers and lists, missing keys, and malformed lines by number."""

import math

from cce.data.arrow import json_names, parse_json_lines
from cce.data.preparation.job import Columns, Reading
from helpers.raw_files import bags_of, words_of

COLUMNS = Columns("y", ("a",), ("x",), multi_hot=("tags",))


def test_rows_are_as_by_hand():
    text = b'{"y": 1, "a": "u", "x": 2.5, "tags": ["p", 7]}\n{"y": 0, "a": 3, "x": null}\n'
    text += b'{"y": true, "tags": [], "more": {}}'
    block = parse_json_lines(text, COLUMNS, Reading())
    assert block.numbers["y"].tolist() == [1, 0, 1]
    assert block.numbers["x"][0] == 2.5
    assert math.isnan(block.numbers["x"][1])
    assert words_of(block.words["a"]) == ["u", "3", None]
    assert bags_of(block.words["tags"]) == [["p", "7"], [], []]
    assert block.bad == []


def test_malformed_lines_are_named_and_left_out():
    text = b'{"y": 1}\n{"y": \n[1]\n{"y": "no"}\n{"y": 0, "a": {}}\n\xff\n'
    block = parse_json_lines(text, COLUMNS, Reading())
    assert block.lines.tolist() == [0]
    assert block.num_lines == 6
    reasons = dict(block.bad)
    assert sorted(reasons) == [1, 2, 3, 4, 5]
    assert reasons[2] == "a line must be a JSON object, got list"
    assert reasons[3] == "y must be a number, got 'no'"
    assert reasons[4] == "a must be a word, a number or a list of them, got dict"


def test_text_may_stand_for_a_list():
    block = parse_json_lines(b'{"y": 1, "tags": "p^q"}\n', COLUMNS, Reading(separator="^"))
    assert bags_of(block.words["tags"]) == [["p", "q"]]


def test_words_that_mean_missing_are_missing_numbers():
    block = parse_json_lines(b'{"y": 1, "x": "NA"}\n{"y": 1, "x": " 2 "}\n', COLUMNS, Reading(missing=("NA",)))
    assert block.bad == []
    assert math.isnan(block.numbers["x"][0])
    assert block.numbers["x"][1] == 2


def test_names_are_those_of_all_objects():
    assert json_names(b'{"b": 1}\nno JSON\n{"a": 1, "b": 2}\n[1]') == ["b", "a"]
