"""Which series was better than which, from records; and the table that comes with the package."""

import importlib
from pathlib import Path

import pytest

from cce.experiments.measured_order import FILE, MeasuredOrder, Point, Series, derive_order, read_measured_order
from cce.footprint import Footprint
from cce.records import RunRecord

ROOT = Path(__file__).parents[2]


def record(series, nbytes, bce, *, training=0, seed=0, **config):
    method = config.pop("method", series)
    size = Footprint("t", method, 100, 10, 1, nbytes, 0, 1000, 4000, gradient_nbytes=nbytes, optimizer_nbytes=training)
    return RunRecord(
        method, seed, 1, nbytes, {"bce": bce}, 1.0, config=config, name=series, series=series, tables=(size,)
    )


def order_of(**points):
    """One set, with points `(ratio, excess)` of each series."""
    series = {name: Series(name, name, {}, 0) for name in points}
    measured = {name: [Point(ratio, excess, 1.0, 1) for ratio, excess in each] for name, each in points.items()}
    return MeasuredOrder(series, {"one": measured})


def test_the_table_of_the_package_is_what_the_script_derives_from_the_stored_records(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    script = importlib.import_module("benchmarks.measured_order")
    shipped = (ROOT / "src" / "cce" / "experiments" / FILE).read_text("utf-8")
    assert shipped == script.derived(), "records have changed: run python -m benchmarks.measured_order"
    order = read_measured_order()
    assert order.to_json() == shipped
    assert list(order.points) == ["anime", "bookcrossing", "criteo_dac80k", "ml1m"]
    assert sum(map(len, order.points.values())) > 30


def test_the_stored_order_says_what_the_results_say():
    """docs/results.md: `cce` is ahead of all that trains small; at 8 times, rounding a full table may be ahead."""
    order = read_measured_order()
    for ratio in (8, 16, 32):
        standings = [each.series for each in order.standings(ratio)]
        assert next(name for name in standings if not order.series[name].source) in ("cce", "cce, 8 columns")
        assert ratio == 8 or standings[0] in ("cce", "cce, 8 columns")
    assert {each.series for each in order.standings(1000)} == {"robe", "ce-concat", "hash", "hash-embedding"}
    assert order.standings(10_000) == []


def test_losses_and_bytes_are_means_over_seeds_beside_the_full_table():
    records = [
        record("full", 4000, 0.5, training=8000),
        record("full", 4000, 0.6, training=8000, seed=1),
        record("hash", 400, 0.57),
        record("hash", 400, 0.61, seed=1),
        record("hash", 100, 0.7, training=300),
    ]
    order = derive_order({"one": records})
    assert order.points == {"one": {"hash": [Point(10.0, 0.04, 0.2, 2), Point(40.0, 0.15, 0.125, 1)]}}
    assert MeasuredOrder.from_json(order.to_json()) == order


def test_what_starts_from_another_run_holds_that_in_training():
    records = [
        record("full", 4000, 0.5, training=8000),
        record("quantized", 1000, 0.55, training=2000),
        record("pq", 400, 0.57, start_from="sweeps/full", method_options={"num_columns": 8}),
        record("coded", 300, 0.56, method="cce", start_from="sweeps/quantized"),
    ]
    order = derive_order({"one": records})
    assert order.series["pq"] == Series("pq", "pq", {"num_columns": 8}, 0, 0, "full")
    assert order.points["one"]["pq"][0].training == 4.0
    assert order.series["coded"].source == "quantized"
    assert order.points["one"]["coded"][0].training == order.points["one"]["quantized"][0].training


def test_records_without_full_tables_are_rejected():
    with pytest.raises(ValueError, match="records must have runs of method 'full' to compare with, got 1 without"):
        derive_order({"one": [record("hash", 400, 0.5)]})


def test_records_that_do_not_say_what_is_held_are_rejected():
    bare = RunRecord("hash", 0, 1, 400, {"bce": 0.5}, 1.0, series="hash", name="one")
    with pytest.raises(ValueError, match="records must say what tables hold in training, got none in 'one'"):
        derive_order({"one": [record("full", 4000, 0.5), bare]})


def test_losses_between_two_sizes_are_linear_in_the_logarithm():
    order = order_of(a=[(4, 0.0), (64, 0.4)], b=[(4, 0.15), (64, 0.15)])
    first, second = order.standings(16)
    assert (first.series, first.excess, first.better, first.comparisons) == ("b", 0.15, 1, 1)
    assert (second.series, second.better) == ("a", 0)
    assert second.excess == pytest.approx(0.2)
    assert [each.series for each in order.standings(8)] == ["a", "b"]


@pytest.mark.parametrize(("ratio", "is_known"), [(2.4, False), (2.5, True), (10, True), (50, True), (51, False)])
def test_a_size_stands_for_budgets_about_it(ratio, is_known):
    assert bool(order_of(a=[(10, 0.0), (40, 0.1)]).standings(ratio)) is is_known


def test_tables_that_cannot_be_larger_stand_for_all_larger_budgets():
    series = {"a": Series("a", "cce", {}, 5)}
    order = MeasuredOrder(series, {"one": {"a": [Point(40.0, 0.1, 1.0, 3)]}})
    assert [each.num_runs for each in order.standings(2)] == [3]


def test_wins_are_counted_on_sets_that_both_were_measured_on():
    hard, easy = (order_of(a=[(8, 0.5)], b=[(8, 0.6)]), order_of(c=[(8, 0.1)], b=[(8, 0.2)]))
    order = MeasuredOrder(hard.series | easy.series, {"hard": hard.points["one"], "easy": easy.points["one"]})
    found = {each.series: (each.better, each.comparisons, each.num_sets) for each in order.standings(8)}
    assert found == {"a": (1, 1, 1), "c": (1, 1, 1), "b": (0, 2, 2)}
    assert list(found) == ["c", "a", "b"]  # by wins, and not by means over different sets
