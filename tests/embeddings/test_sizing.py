"""A table that is asked for, and what it gets of a limit."""

import pytest

from cce.budget import FULL_SIZED, Budget
from cce.embeddings import METHODS
from cce.embeddings.sizing import TableRequest


def request(method="cce", num_embeddings=1000, **options):
    return TableRequest(METHODS[method], num_embeddings, 16, options, name="user")


@pytest.mark.parametrize("method", [method for method in METHODS if method not in FULL_SIZED])
@pytest.mark.parametrize("measure", ["num_params", "nbytes"])
def test_it_is_never_larger_than_the_limit_and_grows_with_it(method, measure):
    asked = request(method)
    limits = [getattr(asked.smallest, measure) * factor for factor in (1, 1.1, 1.5, 2, 4, 8)]
    found = [getattr(asked.within(limit, measure), measure) for limit in limits]
    excess = 1.01 if method == "dhe" else 1  # it rounds, as its documentation says
    assert all(size <= limit * excess for size, limit in zip(found, limits, strict=True))
    assert found == sorted(found)


def test_below_the_smallest_it_is_the_smallest_and_above_the_full_it_is_full():
    asked = request()
    assert asked.within(1) == asked.smallest
    assert asked.within(1).sizes == {"num_rows": 1}
    assert asked.within(1, "nbytes") == asked.smallest
    assert asked.within(1, "nbytes").sizes == {"num_rows": 1}
    assert request("cce-paper").within(10**9) == asked.full
    assert (asked.full.method, asked.full.num_params, asked.full.nbytes) == ("full", 16_000, 64_000)


def test_a_method_that_is_larger_than_the_full_table_gives_the_full_table():
    assert request("collide", num_embeddings=1).smallest.method == "full"


@pytest.mark.parametrize("method", FULL_SIZED)
def test_a_method_of_one_size_has_it_whatever_the_limit(method):
    asked = request(method)
    for measure in ("num_params", "nbytes"):
        assert asked.within(1, measure) == asked.within(10**9, measure) == asked.smallest == asked.largest
    assert (asked.largest.method, asked.largest.num_params, asked.full.method) == (method, 16_000, "full")
    assert asked.for_budget(Budget()) == asked.largest


@pytest.mark.parametrize("measure", ["num_params", "nbytes"])
def test_a_table_of_its_usual_size_is_full_only_where_that_is_no_larger(measure):
    options = {"num_rows": 8, "num_columns": 4}
    asked = request(num_embeddings=1000, **options)
    assert asked.within(10**9, measure) == asked.largest
    assert (asked.largest.method, asked.largest.num_params) == ("cce", 8 * 16)
    assert request(num_embeddings=8, **options).within(10**9, measure).method == "full"


def test_a_limit_below_the_smallest_is_rejected_and_none_is_the_usual_size():
    least = 64 + 503 + 16 * 12  # a row, pointers of one bit with 3 bytes of padding, and a map of bits and ranks
    with pytest.raises(ValueError, match="num_params must be at least 16 for method 'cce' of these sizes, got 3"):
        request().for_budget(Budget(num_params=3))
    with pytest.raises(ValueError, match=f"nbytes must be at least {least} for method 'cce' of these sizes, got 511"):
        request().for_budget(Budget(nbytes=511))
    assert request().for_budget(Budget(nbytes=least)).nbytes == least
    with pytest.raises(ValueError, match="cap must be at least 16 for method 'cce' of the table of 'user', got 3"):
        request().for_budget(Budget(cap=3))
    assert request().for_budget(Budget()).num_params == 256 * 16  # its usual size
    assert request("cce-paper").for_budget(Budget()).method == "full"
