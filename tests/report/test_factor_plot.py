"""The chart of factors shows what the table says."""

import pytest

from cce.report.factor_plot import factor_plot
from cce.report.groups import group_records
from cce.report.palette import palette
from helpers.made_records import made_record, made_records


def rows_of(records, expected=None):
    (group,) = group_records(records)
    plot = factor_plot(group, palette(group.series), expected or {})
    return group, {(row["series"], row["of"]): row for row in plot.spec["data"]["values"]}, plot


def test_two_points_for_each_series_with_the_range_over_seeds():
    group, rows, plot = rows_of(made_records(("cce", "hash")), {"compression": {"cce": [4, 9]}})
    assert set(rows) == {(name, of) for name in ("cce", "hash") for of in ("params", "bytes")}
    factor, row = group.factor("cce", "params"), rows["cce", "params"]
    assert row["factor"] == pytest.approx(factor.value)
    assert (row["low"], row["high"]) == (pytest.approx(factor.seeds.least), pytest.approx(factor.seeds.greatest))
    assert (row["says"], row["how"], row["wanted"], row["expected"]) == (str(factor), "measured", 6, "6.0×")
    assert "wanted" not in rows["cce", "bytes"]
    assert plot.spec["encoding"]["y"]["sort"] == ["cce", "hash"]


def test_extrapolations_show_their_range():
    curve = [made_record("hash", cap, bce=bce) for cap, bce in ((500, 0.49), (1000, 0.475), (2000, 0.463))]
    group, rows, _ = rows_of([made_record("full", None, bce=0.455), *curve])
    factor, row = group.factor("hash", "params"), rows["hash", "params"]
    assert (row["low"], row["high"]) == (factor.low, factor.high)
    assert row["low"] < row["factor"] < row["high"]


def test_what_needs_more_than_the_full_table_or_never_gets_there_is_left_out():
    flat = [made_record("hash", cap, bce=0.5) for cap in (500, 1000)]
    slow = [made_record("robe", cap, bce=0.5 - cap / 1e9) for cap in (500, 1000)]
    _, rows, _ = rows_of([made_record("full", None, bce=0.45), *flat, *slow])
    assert rows == {}
