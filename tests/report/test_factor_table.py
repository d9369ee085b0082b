"""Factors beside what was expected."""

import pytest

from cce.report.factor_table import expected_value, factor_table
from cce.report.groups import group_records
from helpers.made_records import made_record, made_records

EXPECTED = {
    "source": "the paper",
    "compression": {"cce": 8500, "ce-concat": [127, 155], "hash": "many"},
    "largest": {"cce": 11000},
    "bce": {"cce": 0.4521},
}


def rows_of(records, expected):
    (group,) = group_records(records)
    table = factor_table(group, expected)
    return table, {row["series"]: row for row in table.as_dicts()}


def test_the_greatest_factor_comes_first_and_the_full_table_not_at_all():
    table, rows = rows_of(made_records(), {})
    assert list(rows)[:2] == ["cce", "hash"]
    assert "full" not in rows
    assert not any("expected" in column.name for column in table.columns)
    assert rows["cce"]["params: kind"] == "measured"
    assert rows["cce"]["how"] == "measured, 3 of 3 seeds reach it"
    assert rows["cce"]["params: seeds least"] <= rows["cce"]["over seeds"] <= rows["cce"]["params: seeds greatest"]
    assert rows["ce-concat"]["params: kind"] == "extrapolated"


def test_expected_numbers_stand_beside():
    table, rows = rows_of(made_records(), EXPECTED)
    names = [column.name for column in table.columns]
    assert len(names) == len(set(names))
    assert names[1:3] == ["fewer params", "expected"]
    assert rows["cce"]["expected"] == 8500
    assert rows["cce"]["largest table: expected"] == 11000
    assert rows["cce"]["expected BCE"] == 0.4521
    assert rows["ce-concat"]["expected"] == pytest.approx((127 * 155) ** 0.5)
    assert rows["hash"]["expected"] == "many"
    assert rows["dhe"]["expected"] is None
    text = table.as_markdown()
    for words in ("8,500×", "127–155×", "11,000×", "0.4521"):
        assert words in text
    assert 'title="by the paper"' in table.as_html()


def test_without_a_full_table_that_is_said():
    _, rows = rows_of([made_record("cce", 500)], {})
    assert rows["cce"]["how"] == "unknown; there is no full table to compare with"
    assert rows["cce"]["fewer params"] is None


def test_one_seed_has_no_range():
    runs = [made_record("hash", 500, bce=0.46), made_record("hash", 1000, bce=0.44)]
    table, rows = rows_of([made_record("full", None, bce=0.45), *runs], {})
    assert "| 1,302× | 1,302× | – |" in table.as_markdown()
    assert rows["hash"]["how"] == "measured"


def test_only_a_full_table_gives_no_lines():
    table, _ = rows_of([made_record("full", None)], EXPECTED)
    assert table.rows == []


def test_an_expected_range_has_a_middle():
    assert expected_value([4, 9]) == 6
    assert expected_value(3) == 3
    assert expected_value("x") is None
    assert expected_value(None) is None
