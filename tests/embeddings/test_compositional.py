"""How ids are split over several small tables, and how a budget is."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cce
from cce.embeddings.compositional import default_columns
from cce.indexing import MultiplyShift, QuotientRemainder


@pytest.mark.parametrize(
    ("dim", "columns"),
    [
        *((4, 4), (8, 4), (16, 4), (64, 4), (128, 4), (12, 4), (20, 4)),  # the paper's
        *((1, 1), (2, 2), (3, 3), (6, 3), (9, 3), (18, 3)),
        *((5, 5), (10, 5), (15, 5), (25, 5), (30, 5)),  # 3 is as near as 5: the larger
        *((14, 2), (22, 2), (49, 7)),  # 7 and 1 are as near: the larger
        *((7, 7), (21, 3), (35, 5)),
        *((11, 1), (13, 1), (17, 1), (31, 1), (127, 1)),  # primes whose other divisor is too far
    ],
)
def test_the_number_of_columns_is_the_divisor_nearest_to_four(dim, columns):
    assert default_columns(dim) == columns


def make_split(split, num_ids, **sizes):
    return cce.embeddings.CompositionalSumEmbedding(num_ids, 4, split=split, **sizes).split


def rows_for(kind, split, num_ids, num_params, num_tables):
    """The rows of the first table that a budget gives, in vectors of 4 values."""
    options = kind.complete_options({"split": split, "num_tables": num_tables})
    return kind.size_for_budget(num_ids, 4, num_params, options)["num_rows"]


def test_hashed_tables_have_as_many_rows_each():
    split = make_split("hash", 1000, num_tables=3, num_rows=7, generator=torch.Generator().manual_seed(0))
    assert split.rows_per_column == (7, 7, 7)
    expected = MultiplyShift(3, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(split(torch.arange(1000)), expected(torch.arange(1000)))


@pytest.mark.parametrize(
    ("num_ids", "num_tables", "num_rows", "rows_per_column"),
    [
        (1000, 2, 32, (32, 32)),  # the square root
        (1000, 2, 100, (100, 10)),
        (1000, 2, 300, (300, 4)),
        (1000, 3, 10, (10, 10, 10)),
        (1000, 4, 40, (40, 3, 3, 3)),
        (1000, 1, 1000, (1000,)),
        (1000, 3, 1000, (1000, 1, 1)),
        (7, 2, 100, (100, 1)),
    ],
)
def test_by_quotient_and_remainder_the_first_table_has_the_rows_and_the_others_what_ids_need(
    num_ids, num_tables, num_rows, rows_per_column
):
    split = make_split("quotient-remainder", num_ids, num_tables=num_tables, num_rows=num_rows)
    assert isinstance(split, QuotientRemainder)
    assert split.rows_per_column == rows_per_column
    ids = torch.arange(num_ids)
    assert torch.equal(split(ids)[:, 0], ids % num_rows)
    assert len(split(ids).unique(dim=0)) == num_ids


def test_a_hashed_budget_is_cut_evenly():
    assert rows_for(cce.embeddings.CompositionalSumEmbedding, "hash", 1000, 127, 3) == 10  # eleven rows would be 132


@pytest.mark.parametrize(
    ("kind", "split", "num_tables", "smallest", "num_rows"),
    [
        (cce.embeddings.CompositionalSumEmbedding, "hash", 3, 12, 1),
        # and 28 quotients; balanced: 32 and 32
        (cce.embeddings.CompositionalProductEmbedding, "quotient-remainder", 2, 256, 36),
    ],
)
def test_a_budget_below_the_smallest_tables_is_rejected(kind, split, num_tables, smallest, num_rows):
    message = f"num_params must be at least {smallest} for method '{kind.method}' of these sizes, got {smallest - 1}."
    with pytest.raises(ValueError, match=re.escape(message)):
        rows_for(kind, split, 1000, smallest - 1, num_tables)
    assert rows_for(kind, split, 1000, smallest, num_tables) == num_rows


@pytest.mark.slow
@settings(deadline=None)
@given(
    num_ids=st.integers(1, 10**5),
    num_tables=st.integers(1, 5),
    share=st.floats(0, 1),
    split=st.sampled_from(["hash", "quotient-remainder"]),
)
def test_a_split_spends_what_it_can_of_a_budget(num_ids, num_tables, share, split):
    budget, kind = max(1, int(share * num_ids * 4)), cce.embeddings.CompositionalSumEmbedding
    try:
        num_rows = rows_for(kind, split, num_ids, budget, num_tables)
    except ValueError as error:
        smallest = int(re.search(r"at least (\d+) for method 'ce-sum'", str(error))[1])
        assert budget < smallest
        budget, num_rows = smallest, rows_for(kind, split, num_ids, smallest, num_tables)
    sizes = {"num_tables": num_tables, "split": split}
    assert kind.shapes(num_ids, 4, sizes | {"num_rows": num_rows}).num_params <= budget
    if num_rows < num_ids:  # one row more would not fit
        assert kind.shapes(num_ids, 4, sizes | {"num_rows": num_rows + 1}).num_params > budget
