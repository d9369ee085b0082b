"""Values and their counts: merged, ranked, found again."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.data.arrow.blocks import (
    as_texts,
    as_values,
    by_falling_count,
    concatenate,
    find_values,
    hex_words,
    merge_counts,
    with_missing,
)
from helpers.raw_files import vocabulary_of


def test_hexadecimal_words_are_numbers():
    values = as_values(["0000000a", "ffffffff", "FF", "68fd1e64"])
    assert hex_words(values, None).to_pylist() == [10, 2**32 - 1, 255, 0x68FD1E64]
    assert hex_words(values, 100).to_pylist() == [10, (2**32 - 1) % 100, 55, 0x68FD1E64 % 100]
    assert hex_words(as_values([]), None).to_pylist() == []
    with pytest.raises(ValueError, match="must be a hexadecimal word of at most 8 digits, got 'word'"):
        hex_words(as_values(["word"]), None)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.lists(st.text(alphabet="aAé€z0", max_size=2), max_size=30), min_size=1, max_size=4))
def test_counts_are_merged_and_ranked_as_by_hand(blocks):
    pairs = [(as_values(block), np.ones(len(block), np.int64)) for block in blocks]
    values, counts = by_falling_count(*merge_counts(pairs))
    everything = [value for block in blocks for value in block]
    assert counts.tolist() == [everything.count(value) for value in values.to_pylist()]
    expected = vocabulary_of(value or "\0" for value in everything)  # here the empty word is no missing value
    assert {value or "\0": index + 1 for index, value in enumerate(values.to_pylist())} == expected


def test_values_that_are_not_found_are_minus_one():
    vocabulary = as_values(["b", "a"])
    assert find_values(as_values(["a", "c", "b"]), vocabulary).tolist() == [1, -1, 0]


def test_integers_and_words_together_are_words():
    numbers = hex_words(as_values(["1"]), None)
    assert concatenate([numbers, as_values(["x"])]).to_pylist() == ["1", "x"]


def test_words_are_found_among_integers_if_they_are_such_numbers():
    vocabulary = hex_words(as_values(["a", "c"]), None)  # 10 and 12
    words = as_values(["12", "012", "x", "1.5", "-10", "", "9" * 19, "9223372036854775807", "10"])
    assert find_values(words, vocabulary).tolist() == [1, 1, -1, -1, -1, -1, -1, -1, 0]


def test_texts_are_the_words_or_the_digits_of_numbers():
    def texts(values, *, whole):
        offsets, text = as_texts(values, whole=whole)
        return [bytes(text[a:b]).decode() for a, b in itertools.pairwise(offsets)]

    words = as_values(["x", "é7", "007", "-0", "-12"])
    assert texts(words, whole=False) == ["x", "é7", "007", "-0", "-12"]
    assert texts(words[2:], whole=True) == ["7", "0", "-12"]
    assert texts(words[:2], whole=True) == ["?", "?"]
    assert texts(with_missing(words[2:3]), whole=True) == ["", "7"]
    assert texts(hex_words(words[2:3], None), whole=False) == ["7"]
    assert texts(words[:0], whole=False) == []
