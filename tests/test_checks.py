"""Argument checks name the argument, the rule and the value; objects know what they were made with."""

import copy
import pickle
import re

import pytest

from cce.checks import RemembersArguments, arguments_of, check_choice, check_divides, check_known, check_range


def test_a_name_that_is_not_known_is_rejected_with_the_closest_match_or_with_all():
    check_known("no such metric, 'auc'", "auc", ("auc", "bce"))
    with pytest.raises(ValueError, match=re.escape("no such metric, 'acu': did you mean 'auc'?")):
        check_known("no such metric, 'acu'", "acu", ("auc", "bce"))
    with pytest.raises(ValueError, match=re.escape("no such metric, 'xyz': there are auc, bce.")):
        check_known("no such metric, 'xyz'", "xyz", ("auc", "bce"))


@pytest.mark.parametrize("value", [3, 4, 9])
def test_an_integer_inside_the_range_passes(value):
    check_range("num_rows", value, 3, 10)


@pytest.mark.parametrize("value", [2, 10, -1, 10**30])
def test_an_integer_outside_the_range_is_rejected_with_name_range_and_value(value):
    with pytest.raises(ValueError, match=re.escape(f"num_rows must lie in [3, 10), got {value}.")):
        check_range("num_rows", value, 3, 10)


@pytest.mark.parametrize(
    ("high", "shown"),
    [
        (2**15, "32768"),
        (2**16, "2**16"),
        (2**16 + 1, "65537"),
        (2**31, "2**31"),
        (2**63, "2**63"),
        (2**63 - 1, str(2**63 - 1)),
    ],
)
def test_a_large_power_of_two_is_shown_as_one_and_nothing_else_is(high, shown):
    with pytest.raises(ValueError, match=re.escape(f"num_rows must lie in [1, {shown}), got 0.")):
        check_range("num_rows", 0, 1, high)


@pytest.mark.parametrize("high", [0, -5])
def test_a_range_that_ends_at_zero_or_below_is_shown_as_it_is(high):
    with pytest.raises(ValueError, match=re.escape(f"padding_idx must lie in [-9, {high}), got 7.")):
        check_range("padding_idx", 7, -9, high)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (4.0, "4.0 of type float"),
        ("4", "'4' of type str"),
        (True, "True of type bool"),
        (None, "None of type NoneType"),
    ],
)
def test_what_is_not_an_int_is_rejected_with_its_type(value, shown):
    with pytest.raises(TypeError, match=re.escape(f"num_rows must be an int, got {shown}.")):
        check_range("num_rows", value, 1, 10)


def test_a_word_among_the_choices_passes():
    check_choice("mode", "mean", ("sum", "mean"))


def test_choices_may_be_the_keys_of_a_dictionary():
    check_choice("mode", "mean", {"sum": 1, "mean": 2})
    with pytest.raises(ValueError, match=re.escape("mode must be one of sum, mean; got 'median'.")):
        check_choice("mode", "median", {"sum": 1, "mean": 2})


@pytest.mark.parametrize("value", ["Mean", "", None, 3, ["sum"]])
def test_a_wrong_word_is_rejected_with_the_right_ones(value):
    with pytest.raises(ValueError, match=re.escape(f"mode must be one of sum, mean; got {value!r}.")):
        check_choice("mode", value, ("sum", "mean"))


@pytest.mark.parametrize("parts", [1, 2, 3, 12])
def test_a_divisor_passes(parts):
    check_divides("num_columns", parts, "embedding_dim", 12)


@pytest.mark.parametrize("parts", [5, 24])
def test_an_uneven_cut_is_rejected_with_both_numbers(parts):
    message = f"embedding_dim must be a multiple of num_columns, got embedding_dim=12 and num_columns={parts}."
    with pytest.raises(ValueError, match=re.escape(message)):
        check_divides("num_columns", parts, "embedding_dim", 12)


class Point(RemembersArguments):
    def __init__(self, x, y=2, *, generator=None, **others):
        self.x = x


class Many(RemembersArguments):
    def __init__(self, *values):
        pass


def test_arguments_are_known_by_name_in_copies_as_well():
    point = Point(1, generator=object(), z=3)
    for each in (point, copy.deepcopy(Point(1, z=3)), pickle.loads(pickle.dumps(Point(1, z=3)))):
        assert arguments_of(each) == {"x": 1, "z": 3}


def test_arguments_without_names_cannot_be_told():
    assert arguments_of(Many()) == {}
    with pytest.raises(TypeError, match=r"^Many must be made with named arguments to be saved, got \*values\.$"):
        arguments_of(Many(1, 2))
