"""The tables of a report: the summary, compression factors, the memory of a run, and where runs ran."""

import pytest

from cce_lab.report.groups import group_records
from cce_lab.report.tables import environment_table, factor_table, memory_table, summary_table
from helpers.made_records import ENVIRONMENT, made_record, made_records


def table_of(records):
    (group,) = group_records(records)
    return summary_table(group)


def test_a_line_by_hand():
    records = [made_record("full", None, bce=0.45)]
    peaks = {"train": 3_000, "finalize": 4_000}
    records += [
        made_record("cce", 8000, seed, bce=bce, peak_nbytes=peaks) for seed, bce in enumerate((0.46, 0.47, 0.48))
    ]
    table = table_of(records)
    full, cce = table.as_dicts()
    assert (full["series"], full["budget"], full["fewer params"], full["against full"]) == ("full", "full", 1.0, 0.0)
    assert cce["params"] == records[1].num_params
    assert cce["fewer params"] == pytest.approx(records[0].num_params / records[1].num_params)
    assert cce["fewer served"] == pytest.approx(records[0].nbytes / records[1].nbytes)
    assert cce["training bytes"] == records[1].training_nbytes
    assert cce["fewer in training"] == pytest.approx(records[0].training_nbytes / records[1].training_nbytes)
    names = [column.name for column in table.columns]
    assert names[2:5] == ["BCE", "against full", "AUC"]  # on a phone the score is what one sees
    assert names[5:10:2] == ["training bytes", "served bytes", "params"]  # bytes lead
    assert cce["BCE"] == pytest.approx(0.47)
    assert cce["against full"] == pytest.approx(0.02)
    assert (cce["seeds"], cce["rows/s"]) == (3, 52_000)
    assert (full["measured peak"], cce["measured peak"]) == (None, 4_000)
    assert "cce     cap 8,000" in table.as_text()
    assert "0.4700 [0.4600–0.4800]" in table.as_text()
    assert "+0.0200" in table.as_text()
    assert 'title="better than the full table in 0 of 3 seeds">+0.0200' in table.as_html()


def test_every_score_has_its_columns_and_the_leading_one_is_compared():
    scores = {"bce": 0.46, "auc": 0.7, "calibration": 0.5, "profit": 3.0}
    records = [made_record("full", None, scores=scores), made_record("cce", 500, scores=scores | {"calibration": 0.4})]
    for record in records:
        record.config["metrics"] = ["calibration"]
    table = table_of(records)
    names = [column.name for column in table.columns]
    assert names[2:7] == ["calibration", "against full", "BCE", "AUC", "profit"]
    row = table.as_dicts()[1]
    assert (row["calibration"], row["profit"], row["BCE"]) == (0.4, 3.0, 0.46)
    assert row["against full"] == pytest.approx(-0.1)


def test_without_full_tables_curve_score_and_ledger_there_are_gaps():
    bare = made_record("cce", 500, bce=float("nan"), auc=float("nan"), curve=[], tables=())
    (row,) = table_of([bare]).as_dicts()
    for name in ("fewer params", "BCE", "against full", "AUC"):
        assert row[name] is None, name


EXPECTED = {
    "source": "the paper",
    "compression": {"cce": 8500, "ce-concat": [127, 155], "hash": "many"},
    "largest": {"cce": 11000},
    "bce": {"cce": 0.4521},
    "calibration": {"cce": 0.6},
    "full_bce": 0.45,
}


def rows_of(records, expected):
    (group,) = group_records(records)
    table = factor_table(group, expected)
    return table, {row["series"]: row for row in table.as_dicts()}


def test_the_greatest_factor_comes_first_and_the_full_table_not_at_all():
    table, rows = rows_of(made_records(), {})
    assert list(rows)[:2] == ["hash", "cce"]  # by bytes in training: pointers and clusterings of cce count
    assert "full" not in rows
    assert not any("expected" in column.name for column in table.columns)
    assert rows["cce"]["how"] == "measured, 3 of 3 seeds reach it"
    assert "(extrapolated)" in next(line for line in table.as_text().splitlines() if "ce-concat" in line)


def test_expected_numbers_stand_beside():
    table, rows = rows_of(made_records(), EXPECTED)
    names = [column.name for column in table.columns]
    assert len(names) == len(set(names))
    assert [name for name in names if "fewer" in name] == [
        *("fewer training bytes", "fewer served bytes", "fewer params", "fewer params of the largest table")
    ]
    assert rows["cce"]["expected params"] == 8500
    assert rows["cce"]["expected params of the largest table"] == 11000
    assert rows["cce"]["expected BCE"] == 0.4521
    assert rows["cce"]["expected calibration"] == 0.6
    assert rows["ce-concat"]["expected params"] == pytest.approx((127 * 155) ** 0.5)
    assert rows["hash"]["expected params"] is None
    assert rows["dhe"]["expected params"] is None
    text = table.as_text()
    for words in ("8,500×", "127–155×", "11,000×", "0.4521"):
        assert words in text
    assert 'title="by the paper"' in table.as_html()


def test_without_a_full_table_that_is_said():
    _, rows = rows_of([made_record("cce", 500)], {})
    assert rows["cce"]["how"] == "unknown; there is no full table to compare with"
    assert rows["cce"]["fewer served bytes"] is None


def test_tables_and_their_sum():
    record = made_record("cce", 8000)
    rows = memory_table(record.tables).as_dicts()
    assert [row["table"] for row in rows] == [
        "tables.C3",
        "tables.C12",
        "tables.C7",
        "tables.C1",
        "tables.C9",
        "all tables",
    ]
    assert [row["method"] for row in rows] == ["cce", "cce", "cce", "full", "full", ""]
    first, total = rows[0], rows[-1]
    assert (first["ids"], first["params"], first["codebook"], first["pointers"]) == (200_000, 8000, 32_000, 800_000)
    assert (first["optimizer"], first["fewer params"], first["clustering"]) == (32_000, 400, 0)
    assert first["fewer bytes"] == 200_000 * 16 * 4 / 832_000
    assert total["params"] == record.num_params
    assert total["codebook"] + total["pointers"] == record.nbytes


def test_a_line_for_each_environment():
    other = ENVIRONMENT | {"torch": "2.9.0", "gpu": "a card"}
    records = [made_record("cce", 500, seed) for seed in range(2)] + [made_record("cce", 500, 2, environment=other)]
    table = environment_table(records)
    rows = table.as_dicts()
    assert [(row["runs"], row["torch"], row["gpu"]) for row in rows] == [(2, "2.13.0", ""), (1, "2.9.0", "a card")]
