"""JSON lines."""

import pytest

from cce.data.prepare.arrow import parse_json
from cce.data.prepare.columns import Columns, Reading
from helpers.raw_files import bags_of, words_of

COLUMNS, READING = Columns(None, ("user",), ("age",), ("tags",)), Reading()


def test_lines_are_rows_and_null_is_missing():
    text = b'{"user": "a", "age": 1, "tags": ["x", null]}\n{"tags": null, "user": null, "more": {"x": 1}}\n'
    block = parse_json(text, COLUMNS, READING, check=True)
    assert words_of(block.words["user"]) == ["a", None]
    assert bags_of(block.words["tags"]) == [["x"], []]
    assert (block.numbers["age"][0], block.num_lines) == (1, 2)


def test_a_key_that_no_row_has_is_an_error_or_missing():
    text = b'{"user": 5, "tags": "x"}\n'
    with pytest.raises(ValueError, match=r"^JSON lines must have a column 'age'; it has tags, user\.$"):
        parse_json(text, COLUMNS, READING, check=True)
    block = parse_json(text, COLUMNS, READING, check=False)
    assert (words_of(block.words["user"]), block.numbers["age"].tolist()[0] == 0) == ([5], False)


@pytest.mark.parametrize("text", [b"no JSON\n", b'{"user": "a"}\n{"user": 1}\n', b"[1]\n", b'{"user": "a"'])
def test_what_is_no_json_is_one_line(text):
    with pytest.raises(
        ValueError, match=r"^lines must be JSON objects whose values are of one type a column: "
    ) as caught:
        parse_json(text, COLUMNS, READING, check=False)
    assert "\n" not in str(caught.value)
