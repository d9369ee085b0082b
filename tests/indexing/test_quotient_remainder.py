"""Digits are Python's divmod, name every id once, and their radices spend what they are given."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.indexing import QuotientRemainder, balanced_radices, mixed_radix_digits, radices_within

repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def python_digits(identity, radices):
    digits = []
    for radix in radices:
        identity, digit = divmod(identity, radix)
        digits.append(digit)
    return digits


@pytest.mark.parametrize("radices", [(10, 10, 10), (2**31, 2**32), (3_000_000_019, 3_100_000_003), (7, 2**61)])
def test_digits_equal_divmod_near_the_ends_of_64_bits(radices):
    near = [0, 1, 6, 7, 2**24 + 1, 30_000_001, 2**53 + 1, *range(2**62 - 50, 2**62 + 50), 2**63 - 2, 2**63 - 1]
    assert mixed_radix_digits(torch.tensor(near), radices).tolist() == [python_digits(i, radices) for i in near]


@pytest.mark.slow
@given(st.integers(0, 2**63 - 1), st.lists(st.integers(1, 2**62), min_size=1, max_size=5))
@repeatable
def test_digits_equal_divmod_for_any_id_and_radices(identity, radices):
    assert mixed_radix_digits(torch.tensor(identity), radices).tolist() == python_digits(identity, radices)


@pytest.mark.slow
@given(st.integers(1, 500), st.integers(1, 4))
@repeatable
def test_no_two_ids_share_all_digits_and_digits_give_the_id_back(num_ids, num_digits):
    radices = balanced_radices(num_ids, num_digits)
    digits = QuotientRemainder(radices, num_ids)(torch.arange(num_ids))
    places = torch.tensor([math.prod(radices[:i]) for i in range(num_digits)])
    assert len({tuple(row) for row in digits.tolist()}) == num_ids
    assert torch.equal((digits * places).sum(-1), torch.arange(num_ids))
    assert (digits < torch.tensor(radices)).all()
    assert (digits >= 0).all()


def test_stacked_rows_lie_in_tables_one_below_the_other():
    split = QuotientRemainder((4, 1, 7), 28)
    ids = torch.arange(28).view(7, 4)
    assert torch.equal(split.stacked(ids), split(ids) + torch.tensor([0, 4, 5]))


@pytest.mark.parametrize(
    ("num_ids", "num_digits", "radices"),
    [
        (2**53 + 3, 1, (2**53 + 3,)),  # a float would round it up
        (2**63 - 1, 1, (2**63 - 1,)),
        ((2**31 - 1) ** 2, 2, (2**31 - 1, 2**31 - 1)),
        ((2**31 - 1) ** 2 + 1, 2, (2**31, 2**31 - 1)),
        (10**18, 3, (10**6, 10**6, 10**6)),
    ],
)
def test_balanced_radices_of_huge_vocabularies_are_exact(num_ids, num_digits, radices):
    assert balanced_radices(num_ids, num_digits) == radices


@pytest.mark.slow
@given(st.integers(1, 2**63), st.integers(1, 8))
@repeatable
def test_balanced_radices_name_every_id_and_are_nearly_equal_largest_first(num_ids, num_digits):
    radices = balanced_radices(num_ids, num_digits)
    assert len(radices) == num_digits
    assert math.prod(radices) >= num_ids
    assert list(radices) == sorted(radices, reverse=True)
    assert radices[0] - radices[-1] <= 1
    assert (radices[0] - 1) ** num_digits < num_ids


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3))
@repeatable
def test_no_radices_have_a_smaller_sum_than_the_balanced_ones(num_ids, num_digits):
    smallest = {1: num_ids}.get(num_digits) or min(
        a + b + (c if num_digits == 3 else 0)
        for a in range(1, num_ids + 1)
        for b in range(1, num_ids + 1)
        for c in ([-(-num_ids // (a * b))] if num_digits == 3 else [1])
        if a * b * c >= num_ids
    )
    assert sum(balanced_radices(num_ids, num_digits)) == smallest


@given(st.integers(1, 2**63), st.integers(1, 5), st.integers(1, 2**40))
@repeatable
def test_radices_within_a_number_of_rows_fit_or_even_the_balanced_ones_do_not(num_ids, num_digits, num_rows):
    check_within(num_ids, num_digits, num_rows)


def check_within(num_ids, num_digits, num_rows):
    radices = radices_within(num_ids, num_digits, num_rows)
    if radices is None:
        assert sum(balanced_radices(num_ids, num_digits)) > num_rows
        return
    assert len(radices) == num_digits
    assert math.prod(radices) >= num_ids
    assert sum(radices) <= num_rows


@pytest.mark.slow
@given(st.integers(2, 800), st.integers(2, 4), st.integers(0, 400))
@repeatable
def test_no_other_first_radix_comes_closer_under_the_number_of_rows(num_ids, num_digits, spare):
    num_rows = sum(balanced_radices(num_ids, num_digits)) + spare
    sums = (
        first + sum(balanced_radices(-(-num_ids // first), num_digits - 1))
        for first in range(balanced_radices(num_ids, num_digits)[0], num_ids + 1)
    )
    assert sum(radices_within(num_ids, num_digits, num_rows)) == max(total for total in sums if total <= num_rows)


def test_the_remainder_takes_the_rows_that_the_quotient_does_not_need():
    assert radices_within(1_000_000, 2, 2_000) == (1000, 1000)
    assert radices_within(1_000_000, 2, 10_100) == (10_000, 100)
    assert radices_within(1_000_000, 2, 1_999) is None
    assert radices_within(100, 2, 1000) == (100, 1)
    assert radices_within(100, 1, 99) is None
    assert radices_within(100, 1, 100) == (100,)
