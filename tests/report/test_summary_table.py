"""The summary: numbers by hand."""

import pytest

from cce.report.groups import group_records
from cce.report.summary_table import summary_table
from helpers.made_records import made_record


def table_of(records):
    (group,) = group_records(records)
    return summary_table(group)


def test_a_line_by_hand():
    records = [made_record("full", None, bce=0.45)]
    records += [made_record("cce", 8000, seed, bce=bce) for seed, bce in enumerate((0.46, 0.47, 0.48))]
    table = table_of(records)
    full, cce = table.as_dicts()
    assert (full["series"], full["budget"], full["fewer params"], full["against full"]) == ("full", "full", 1.0, 0.0)
    assert cce["params"] == records[1].num_params
    assert cce["fewer params"] == pytest.approx(records[0].num_params / records[1].num_params)
    assert cce["largest"] == pytest.approx(3_200_000 / 8000)
    assert cce["fewer bytes"] == pytest.approx(records[0].nbytes / records[1].nbytes)
    assert cce["BCE"] == pytest.approx(0.47)
    assert (cce["BCE min"], cce["BCE max"]) == (0.46, 0.48)
    assert cce["BCE 95% low"] == pytest.approx(0.47 - 4.3027 * 0.01 / 3**0.5)
    assert cce["against full"] == pytest.approx(0.02)
    assert (cce["best epoch"], cce["seeds"], cce["rows/s"]) == (2, 3, 52_000)
    assert "| cce | cap 8,000 |" in table.as_markdown()
    assert "0.4700 [0.4600–0.4800]" in table.as_markdown()
    assert "+0.0200" in table.as_markdown()


def test_one_seed_has_no_range():
    assert "| 0.4600 |" in table_of([made_record("cce", 500, bce=0.46)]).as_markdown()


def test_without_full_tables_curve_score_and_ledger_there_are_gaps():
    bare = made_record("cce", 500, bce=float("nan"), auc=float("nan"), curve=[], tables=[])
    (row,) = table_of([bare]).as_dicts()
    for name in ("fewer params", "largest", "BCE", "against full", "AUC", "best epoch"):
        assert row[name] is None, name


def test_the_best_epoch_is_a_mean_over_seeds():
    early = [{"step": 1, "epoch": 1, "bce": 0.1}, {"step": 2, "epoch": 2, "bce": 0.2}, {"step": 3, "epoch": 3}]
    late = [{"step": 1, "epoch": 1, "bce": 0.3}, {"step": 2, "epoch": 2, "bce": 0.2}]
    table = table_of([made_record("cce", 500, 0, curve=early), made_record("cce", 500, 1, curve=late)])
    assert table.as_dicts()[0]["best epoch"] == 1.5
    assert "| 1.5 |" in table.as_markdown()
