"""Features that are made of other columns, each as by hand."""

import math

import numpy as np
import pytest

from cce.data.arrow.blocks import Words, as_values
from cce.data.preparation.job import Columns, Reading
from cce.data.preparation.reading import translate
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


def test_other_words_stay():
    words = Words(np.array([0], np.int32), as_values(["ff"]))
    assert translate(words, "a", Columns("y", ("a",)), Reading()) is words
    assert words_of(translate(words, "a", Columns("y", ("a",)), Reading(is_hex=True))) == [255]
