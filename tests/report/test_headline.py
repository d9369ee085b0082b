"""The first sentence: true whoever wins, and when nobody does."""

from cce.report.groups import group_records
from cce.report.headline import headline
from cce.report.reading import LiveRun
from helpers.made_records import made_record, made_records


def sentence(*records):
    (group,) = group_records(records)
    return headline(group)


FULL = made_record("full", None, bce=0.45)


def test_the_best_and_the_next():
    text = sentence(*made_records(("cce", "hash")))
    assert text.startswith(
        "cce reaches the full table's BCE with 114× fewer params (14.0× fewer bytes); next best, hash: "
    )


def test_when_another_wins_that_is_said():
    hash_runs = [made_record("hash", 500, bce=0.46), made_record("hash", 1000, bce=0.44)]
    robe_runs = [made_record("robe", 1000, bce=0.46), made_record("robe", 2000, bce=0.44)]
    cce_runs = [made_record("cce", 2000, bce=0.46), made_record("cce", 4000, bce=0.44)]
    text = sentence(FULL, *hash_runs, *robe_runs, *cce_runs)
    assert text.startswith("hash reaches the full table's BCE with ")
    assert "next best, robe: " in text
    assert text.endswith(" cce: 365×. One seed.")


def test_one_that_stands_alone():
    reaching = [made_record("hash", 500, bce=0.46), made_record("hash", 1000, bce=0.44)]
    assert sentence(FULL, *reaching).endswith("fewer bytes). One seed.")
    again = [made_record("hash", 500, 1, bce=0.46), made_record("hash", 1000, 1, bce=0.44)]
    assert sentence(FULL, *reaching, *again).endswith("fewer bytes).")
    others = [made_record(method, cap, bce=0.5) for method in ("cce", "robe") for cap in (500, 1000)]
    assert sentence(FULL, *reaching, *others).endswith("; none of the other 2 does within the sizes tried. One seed.")


def test_when_nobody_gets_there():
    text = sentence(FULL, made_record("cce", 500, bce=0.5), made_record("cce", 1000, bce=0.48))
    assert text.startswith(
        "No method reaches the full table's BCE of 0.4500 within the sizes tried. Best: cce, cap 1,000, "
    )
    assert "By extrapolation cce would, at ≤ " in text
    flat = sentence(FULL, made_record("cce", 500, bce=0.5), made_record("cce", 1000, bce=0.5))
    assert "By extrapolation" not in flat


def test_without_a_full_table():
    assert sentence(made_record("cce", 500, bce=0.5)) == (
        "No full table among these runs, so compression factors cannot be told. Best: cce, cap 500, BCE 0.5000."
    )
    assert sentence(made_record("cce", 500, bce=float("nan"))).endswith("None has a score.")


def test_only_a_full_table():
    assert sentence(FULL) == "Only the full table has been run: BCE 0.4500."


def test_before_the_first_run_is_finished():
    (group,) = group_records([], [LiveRun("x", {}, [], 0.0)])
    assert headline(group) == "No run is finished yet; 1 under way."
