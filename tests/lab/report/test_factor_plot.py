"""The chart of compression factors."""

import pytest

from cce_lab.report.groups import group_records
from cce_lab.report.plots import OF, factor_plot
from cce_lab.report.vega import palette
from helpers.made_records import made_record, made_records


def factor_rows(records, expected=None):
    (group,) = group_records(records)
    plot = factor_plot(group, palette(group.series), expected or {})
    return group, {(row["series"], row["of"]): row for row in plot.spec["data"]["values"]}, plot


def test_a_point_for_each_series_and_measure_with_the_range_over_seeds():
    group, rows, plot = factor_rows(made_records(("cce", "hash")), {"compression": {"cce": [4, 9]}})
    assert set(rows) == {(name, of) for name in ("cce", "hash") for of in OF.values()}
    factor, row = group.factor("cce", "params"), rows["cce", "params"]
    assert row["factor"] == pytest.approx(factor.value)
    assert (row["low"], row["high"]) == (pytest.approx(factor.seeds.least), pytest.approx(factor.seeds.greatest))
    assert (row["says"], row["how"], row["wanted"], row["expected"]) == (str(factor), "measured", 6, "6.0×")
    assert "wanted" not in rows["cce", "served bytes"]
    assert plot.spec["encoding"]["y"]["sort"] == ["hash", "cce"]


def test_extrapolations_show_their_range():
    curve = [made_record("hash", cap, bce=bce) for cap, bce in ((500, 0.49), (1000, 0.475), (2000, 0.463))]
    group, rows, _ = factor_rows([made_record("full", None, bce=0.455), *curve])
    factor, row = group.factor("hash", "params"), rows["hash", "params"]
    assert (row["low"], row["high"]) == (factor.low, factor.high)
    assert row["low"] < row["factor"] < row["high"]


def test_what_never_gets_there_or_needs_more_is_shown_in_words():
    flat = [made_record("hash", cap, bce=0.5) for cap in (500, 1000)]
    slow = [made_record("robe", cap, bce=0.5 - cap / 1e9) for cap in (500, 1000)]
    one = made_record("tt", 500, bce=0.5)
    _, rows, plot = factor_rows([made_record("full", None, bce=0.45), *flat, *slow, one])
    words = {name: row["says"] for (name, of), row in rows.items() if of == "training bytes"}
    assert words == {"hash": "never", "robe": "< 1×", "tt": "not reached"}
    assert len(rows) == 3  # once each, not by every measure
    assert not any("factor" in row for row in rows.values())
    assert set(plot.spec["encoding"]["y"]["sort"]) == set(words)
    _, rows, _ = factor_rows([*flat, *slow])
    assert rows == {}  # there is nothing to compare with


def test_only_what_is_measured_is_filled():
    records = [made_record("full", None, bce=0.45), made_record("hash", 500, bce=0.44)]
    records += [made_record("robe", 500, bce=0.46), made_record("robe", 900, bce=0.44)]
    _, rows, plot = factor_rows(records)
    assert (rows["hash", "params"]["how"], rows["robe", "params"]["how"]) == ("at least", "measured")
    marks = {layer["transform"][1]["filter"]: layer["mark"]["filled"] for layer in plot.spec["layer"][1:3]}
    assert marks == {"datum.how == 'measured'": True, "datum.how != 'measured'": False}
    assert "Hollow: a bound" in plot.about


def test_a_factor_that_some_seeds_reach_says_how_many():
    full = [made_record("full", None, seed, bce=0.45) for seed in range(2)]
    runs = [made_record("hash", 500, seed, bce=0.47) for seed in range(2)]
    runs += [made_record("hash", 900, seed, bce=bce) for seed, bce in enumerate((0.41, 0.455))]
    _, rows, _ = factor_rows([*full, *runs])
    assert rows["hash", "params"]["says"].endswith("×, 1 of 2 seeds")
