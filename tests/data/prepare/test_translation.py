"""Features that are made of other columns, each as by hand."""

import math

import numpy as np
import pytest

from cce.data.prepare.arrow import Words, as_values
from cce.data.prepare.columns import Columns, Reading
from cce.data.prepare.translation import bin_edges, bin_words, translate
from helpers.raw_files import words_of


def derived(texts, function):
    columns = Columns("y", ("f",), derived=(("f", "raw", function),))
    return words_of(
        translate(Words(np.array([*range(len(texts)), -1], np.int32), as_values(texts)), "f", columns, Reading())
    )


def test_parts_of_a_time():
    times = ["14102100", "14102523", "14102612"]  # a Tuesday, a Saturday, a Sunday
    assert derived(times, "hour") == ["00", "23", "12", None]
    assert derived(times, "weekday") == ["2", "6", "0", None]
    assert derived(times, "weekend") == ["0", "1", "1", None]
    with pytest.raises(ValueError, match="f could not be made of its column: a time must be YYMMDDHH, got 'noon'"):
        derived(["noon"], "hour")


def test_logarithms_squared_are_buckets_and_zero_is_missing():
    numbers = ["-2", "0", "1", "2", "3", "100", "5775"]
    expected = ["-2", None, "1", "2", *(str(math.floor(math.log(n) ** 2)) for n in (3, 100, 5775)), None]
    assert derived(numbers, "log-squared") == expected


def test_bins_have_about_as_many_rows_each():
    numbers, counts = np.array([3.0, 1.0, 2.0, 9.0]), np.array([2, 4, 2, 8])
    assert bin_edges(numbers, counts, 2) == [9.0]
    assert bin_edges(numbers, counts, 4) == [2.0, 9.0]  # 4, 4 and 8 rows: a number is in one bin
    assert bin_edges(np.array([5.0]), np.array([9]), 8) == []
    assert bin_edges(np.array([]), np.array([]), 8) == []
    words = bin_words(as_values(["1", "1.5", "2", "3", "8.99", "9", "1e9"]), [2.0, 9.0], "f").to_pylist()
    assert words == ["0", "0", "1", "1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("word", "message"), [("x", "could not convert string"), ("inf", "finite numbers .*, got 'inf'")]
)
def test_bins_need_numbers(word, message):
    with pytest.raises(ValueError, match=rf"price must hold .*{message}"):
        bin_words(as_values([word]), [1.0], "price")


def test_other_words_stay():
    words = Words(np.array([0], np.int32), as_values(["ff"]))
    assert translate(words, "a", Columns("y", ("a",)), Reading()) is words
    assert words_of(translate(words, "a", Columns("y", ("a",)), Reading(is_hex=True))) == [255]
