"""The order of methods to expect in a budget: those that can be made for it."""

import pytest

from cce.experiments import expected_order
from cce.training import TrainConfig, plan_run

SIZES = {"user": 60_000, "item": 8_000}
FULL_NBYTES = 68_000 * 16 * 4


def test_methods_stand_as_measured_with_the_bytes_of_their_own_plans():
    order = expected_order(SIZES, 16, nbytes=FULL_NBYTES // 16)
    found = {each.words: each for each in order.methods}
    assert order.methods[0].words in ("--method cce", "--method cce --method-options num_columns=8")
    assert order.ratio == pytest.approx(16, rel=1e-3)
    wins = [each.standing.better / each.standing.comparisons for each in order.methods]
    assert wins == sorted(wins, reverse=True)
    for words, options in (
        ("--method cce", {}),
        ("--method cce --refits 0", {"refits": 0}),
        ("--method robe --method-options block_size=2", {"method": "robe", "method_options": {"block_size": 2}}),
    ):
        tables = plan_run(TrainConfig(data="", nbytes=FULL_NBYTES // 16, **options), SIZES).tables
        assert (found[words].nbytes, found[words].num_params) == (tables.nbytes, tables.num_params)
        assert found[words].nbytes <= FULL_NBYTES // 16


def test_what_needs_a_trained_full_table_says_so():
    found = [each for each in expected_order(SIZES, 16, nbytes=FULL_NBYTES // 4).methods if "pq" in each.words]
    assert {each.words for each in found} == {
        "--method pq --method-options num_columns=8 --start-from FULL",
        "--method pq --method-options num_columns=8 settings={weighted=true} --start-from FULL",
    }
    assert {each.standing.training for each in found} == {(4.0, 4.0)}


def test_methods_that_cannot_be_made_or_were_not_measured_are_listed():
    order = expected_order(SIZES, 16, nbytes=FULL_NBYTES // 200)
    assert "mixed-dim" in order.impossible
    assert {"ce-sum", "quantized"} <= set(order.unmeasured)
    assert not {"full", "hash"} & {*order.unmeasured, *order.impossible}
    assert "Cannot be made so small: " in str(order)


def test_what_is_not_the_default_is_typed():
    order = expected_order({"user": 40_000_000}, 16, nbytes=100_000_000)
    words = [each.words for each in order.methods]
    assert {"--method cce", "--method cce --refits 0"} <= set(words)  # so many ids are not refitted, unless asked


def test_smaller_tables_than_were_measured_have_no_order():
    order = expected_order(SIZES, 16, nbytes=FULL_NBYTES // 10_000)
    assert order.methods == ()
    assert "is not known: nothing was measured near it" in str(order)


def test_options_that_do_not_go_with_the_dimension_are_not_possible():
    order = expected_order(SIZES, 12, nbytes=FULL_NBYTES // 32)
    assert "ce-concat" in order.impossible  # 8 columns of 12 values
