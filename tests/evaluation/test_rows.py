"""What no metric may be given."""

import math

import pytest
import torch

from cce.evaluation import ScoredRows, check_rows

ZEROS = torch.zeros(4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_counted_and_the_first_is_named(value):
    logits = torch.tensor([0.0, value, 1.0, value])
    expected = f"logits must be finite, got 2 of 4 that are not; the first, at position 1, is {value}."
    with pytest.raises(ValueError, match=f"^{expected}$"):
        check_rows(logits, torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("value", [2.0, -1.0, 0.5, math.nan])
def test_labels_other_than_0_and_1_are_rejected(value):
    expected = f"labels must be 0 or 1, got 1 of 4 that are not; the first, at position 3, is {value}."
    with pytest.raises(ValueError, match=f"^{expected}$"):
        check_rows(ZEROS, torch.tensor([0.0, 1.0, 0.0, value]))


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_weights_must_be_finite_and_not_negative(value):
    weights = torch.tensor([value, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"weights must be finite and at least 0, got 1 of 4 .* position 0, is"):
        check_rows(ZEROS, ZEROS, weights)


def test_other_shapes_are_rejected_with_both():
    with pytest.raises(ValueError, match=r"labels must have the shape of logits, \[2\], got \[3\]\."):
        check_rows(torch.zeros(2), torch.zeros(3))


def test_positions_are_those_of_the_whole_split():
    with pytest.raises(ValueError, match="the first, at position 1,002, is nan"):
        check_rows(torch.tensor([0.0, 0.0, math.nan]), torch.zeros(3), first_row=1_000)


def test_ordinary_rows_and_no_rows_pass():
    check_rows(ZEROS, torch.tensor([True, False, True, False]), torch.zeros(4))
    check_rows(torch.zeros(0), torch.zeros(0, dtype=torch.int64))


def test_rows_count_the_same_unless_it_is_said():
    rows = ScoredRows.of(torch.tensor([1.0, 2.0]), torch.tensor([0, 1]))
    assert rows.weights.tolist() == [1, 1]


def test_parts_are_put_together_in_their_order():
    first = ScoredRows.of(torch.tensor([1.0, 2.0]), torch.tensor([0, 1]), torch.tensor([3.0, 4.0]))
    last = ScoredRows.of(torch.tensor([7.0]), torch.tensor([1]))
    both = ScoredRows.concatenate([first, last])
    assert (both.logits.tolist(), both.labels.tolist()) == ([1, 2, 7], [0, 1, 1])
    assert both.weights.tolist() == [3, 4, 1]
    assert both[torch.tensor([2, 0])].logits.tolist() == [7, 1]
    assert len(ScoredRows.concatenate([])) == 0
