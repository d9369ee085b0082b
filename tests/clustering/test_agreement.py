"""Churn, entropies and row counts on pointers whose answer is known."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.clustering.agreement import churn, column_entropies, contingency, count_dead


def column(*rows):
    return torch.tensor(rows).unsqueeze(1)


def test_one_id_of_four_that_changes_is_a_quarter():
    assert churn(column(0, 0, 1, 1), column(5, 5, 3, 5)) == 0.25


def test_rows_are_matched_one_to_one():
    """All ids in one row afterwards: only one of the two old rows can be the same one."""
    assert churn(column(0, 0, 0, 1), column(4, 4, 4, 4)) == 0.25


def test_no_pointers_no_churn():
    assert churn(torch.empty(0, 2, dtype=torch.long), torch.empty(0, 2, dtype=torch.long)) == 0


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 10**6))
def test_relabelling_never_counts(num_ids, num_rows, seed):
    g = torch.Generator().manual_seed(seed)
    before = torch.randint(0, num_rows, (num_ids, 2), generator=g)
    names = torch.randperm(num_rows, generator=g)
    assert churn(before, names[before]) == 0
    after = torch.randint(0, num_rows, (num_ids, 2), generator=g)
    assert 0 <= churn(before, after) < 1
    assert churn(before, names[after]) <= 1 - 1 / num_ids


def test_contingency_counts_pairs():
    old, new, counts = contingency(torch.tensor([0, 0, 2, 2]), torch.tensor([1, 1, 0, 1]))
    assert list(zip(old.tolist(), new.tolist(), counts.tolist(), strict=True)) == [(0, 1, 2), (2, 0, 1), (2, 1, 1)]


def test_dead_rows():
    pointers = torch.stack([torch.zeros(100, dtype=torch.long), torch.arange(100) % 20], dim=1)
    assert count_dead([pointers], 20) == 19
    assert count_dead(pointers.split(7), 20) == 19


def test_entropies_of_uniform_and_of_repeated_columns():
    first = torch.arange(12) % 4
    pointers = torch.stack([first, 3 - first, torch.arange(12) % 3], dim=1)
    h1, h2, h3 = column_entropies(pointers, 3)
    assert h1 == pytest.approx(math.log(3))
    assert h2 == pytest.approx(math.log(4))  # the second column only renames the first
    assert h3 == pytest.approx(math.log(12))


def test_a_column_that_collapsed_has_no_entropy():
    pointers = torch.stack([torch.arange(64) % 8, torch.full((64,), 5)], dim=1)
    assert column_entropies(pointers, 2) == pytest.approx((0, math.log(8)))
    assert math.copysign(1, column_entropies(pointers, 1)[0]) == 1  # no negative zero


def test_joint_codes_never_overflow():
    """Written as one number in base 2**30, these three rows of pointers would differ by multiples of 2**64 alone."""
    top = 2**30 - 1
    pointers = torch.tensor([[0, top, top], [16, top, top], [32, top, top]])
    assert column_entropies(pointers, 3) == pytest.approx((0, 0, math.log(3)))
