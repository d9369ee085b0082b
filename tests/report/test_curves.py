"""Rows of validations and clusterings."""

import pytest

from cce.report.curves import MOST_POINTS, curve_rows, event_rows, thin
from cce.report.groups import group_records
from cce.report.reading import LiveRun
from helpers.made_records import made_record

LIVE = LiveRun(
    "hash-1",
    {"data": "data/clicks", "model": "dlrm", "epochs": 10, "method": "hash", "cap": 500},
    [
        {"kind": "train", "step": 50, "loss": 0.6},
        {"kind": "validation", "step": 100, "bce": 0.5, "auc": 0.7},
        {"kind": "validation", "step": 200, "bce": None, "auc": None},
    ],
    1.0,
    series="hashing",
)


def rows_of(records, live=(), name=None):
    (group,) = group_records(records, live)
    return curve_rows(group) if name is None else event_rows(group, name)


def test_one_run_of_each_budget_that_of_the_lowest_seed():
    rows = rows_of([made_record("cce", 500, seed) for seed in (2, 1)])
    scored = [row for row in rows if "bce" in row]
    assert len(scored) == 12
    assert scored[0]["bce"] == round(made_record("cce", 500, 1).curve[0]["bce"], 5)
    assert scored[0] | {"bce": 0, "auc": 0} == {
        "series": "cce",
        "budget": "cap 500",
        "run": 0,
        "live": 0,
        "step": 500,
        "epoch": 1,
        "bce": 0,
        "auc": 0,
    }


def test_clusterings_are_marked_once_a_step_with_what_they_did():
    rows = [row for row in rows_of([made_record("cce", 8000)]) if "clustered" in row]
    assert [(row["step"], row["clustered"]) for row in rows] == [
        (1500, "3 tables, churn 0.92"),
        (3000, "3 tables, churn 0.47"),
        (4500, "3 tables, churn 0.32"),
    ]


def test_facts_of_clusterings_are_averaged_over_tables():
    first = rows_of([made_record("cce", 8000)], name="churn")[0]
    assert first["mean"] == pytest.approx(0.92)
    assert (first["least"], first["greatest"], first["tables"], first["step"]) == (0.9, 0.94, 3, 1500)
    assert rows_of([made_record("hash", 8000)], name="H1") == []


def test_facts_that_are_missing_are_left_out():
    events = [{"step": 1, "churn": None}, {"step": 1, "churn": 0.5}, {"churn": 0.1}, {"step": 2}]
    rows = rows_of([made_record("cce", 8000, events=events)], name="churn")
    assert [(row["step"], row["mean"], row["tables"]) for row in rows] == [(1, 0.5, 1)]
    assert [row["clustered"] for row in rows_of([made_record("cce", 8000, events=events, curve=[])])] == [
        "2 tables, churn 0.50",
        "1 table",
    ]


def test_a_run_under_way_is_drawn_as_far_as_it_is():
    rows = [row for row in rows_of([made_record("cce", 500)], [LIVE]) if row["live"]]
    assert [(row["series"], row["budget"], row["step"], row["bce"]) for row in rows] == [
        ("hashing", "cap 500", 100, 0.5)
    ]


def test_long_curves_keep_their_ends_and_their_best():
    points = [{"step": step, "bce": 0.5 if step != 501 else 0.1} for step in range(1000)]
    kept = thin(points)
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0]["step"], kept[-1]["step"]) == (0, 999)
    assert any(point["step"] == 501 for point in kept)
    assert [point["step"] for point in kept] == sorted(point["step"] for point in kept)
    assert thin(points[:MOST_POINTS]) == points[:MOST_POINTS]
