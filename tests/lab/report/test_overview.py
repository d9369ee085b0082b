"""The table over all sets and protocols, and the options in which series differ."""

import pytest

from cce_lab.report.groups import group_records
from cce_lab.report.overview import gain_of, overview_table, seconds_to_full, settings_table
from helpers.made_records import made_record, made_records


def rows_of(records):
    rows = overview_table(group_records(records)).as_dicts()
    return {(row["method"], row["data set"]): row for row in rows}


def curve(*losses):
    return [{"step": 100 * step, "epoch": step, "bce": loss} for step, loss in enumerate(losses, start=1)]


def timed(method, cap, seed=0, losses=(), seconds=40.0, **changes):
    parts = {"train": seconds / 2, "validate": seconds / 4, "cluster": seconds / 4, "save": 1000.0, "test": 1000.0}
    values = {"curve": curve(*losses), "seconds_by_part": parts, "environment": {"threads": 2}}
    return made_record(method, cap, seed, **(values | changes))


def test_a_line_for_each_series_of_each_set_with_its_factors():
    books = [
        made_record("full", None, bce=0.3),
        made_record("hash", 500, bce=0.31),
        made_record("hash", 1000, bce=0.29),
    ]
    for record in books:
        record.config.update(data="data/books", epochs=1)
    rows = rows_of([*made_records(("cce", "hash")), *books])
    assert set(rows) == {
        ("full", "clicks"),
        ("hash", "clicks"),
        ("cce", "clicks"),
        ("full", "books"),
        ("hash", "books"),
    }
    assert (rows["hash", "books"]["epochs"], rows["hash", "clicks"]["epochs"]) == (1, 10)
    clicks = next(group for group in group_records(made_records(("cce", "hash"))))
    for measure, name in (("training", "training bytes"), ("bytes", "served bytes"), ("params", "params")):
        assert rows["cce", "clicks"][f"fewer {name}"] == clicks.factor("cce", measure).value
    assert rows["full", "clicks"]["fewer params"] is None
    table = overview_table(group_records(made_records(("hash",))))
    assert "–" in table.as_markdown().splitlines()[-1]  # the range over seeds of hash, from the least to the greatest


def test_the_best_gain_is_paired_by_seed_and_in_percent():
    full = [made_record("full", None, seed, bce=bce) for seed, bce in enumerate((0.5, 0.4))]
    runs = [made_record("hash", 500, 1, bce=0.44), made_record("hash", 1000, 1, bce=0.39)]
    rows = rows_of([*full, *runs])
    assert rows["hash", "clicks"]["best gain"] == pytest.approx(100 * 0.01 / 0.45)  # of seed 1, not of the mean
    assert rows["full", "clicks"]["best gain"] is None


def test_a_gain_by_auc_has_the_other_sign():
    records = [made_record("full", None, scores={"auc": 0.7}), made_record("hash", 500, scores={"auc": 0.77})]
    (group,) = group_records(records)
    assert gain_of(group, group.series["hash"][0]) == pytest.approx(10)
    assert rows_of(records)["hash", "clicks"]["AUC"] == 0.77


def test_seconds_until_the_full_tables_best_validation_by_the_share_of_steps():
    full = timed("full", None, losses=(0.6, 0.5, 0.55, 0.56))
    quick = timed("hash", 500, losses=(0.55, 0.49, 0.48, 0.47))
    slow = timed("robe", 500, losses=(0.6, 0.6, 0.6, 0.51))
    (group,) = group_records([full, quick, slow])
    seconds = {name: seconds_to_full(group, budgets[0]) for name, budgets in group.series.items()}
    assert seconds == {"full": 40 * 2 / 4 * 2, "hash": 40 * 2 / 4 * 2, "robe": None}  # two threads; half of the steps


def test_the_fastest_budget_and_the_seeds_own_full_table_count():
    full = [timed("full", None, 0, losses=(0.6, 0.5)), timed("full", None, 1, losses=(0.6, 0.3))]
    runs = [timed("hash", 500, seed, losses=(0.55, 0.45)) for seed in range(2)]  # seed 1 does not reach its 0.3
    runs.append(timed("hash", 1000, 0, losses=(0.4, 0.3)))
    rows = rows_of([*full, *runs])
    assert rows["hash", "clicks"]["CPU s to full"] == 40 / 2 * 2
    assert overview_table(group_records([*full, *runs])).rows[-1][-1].about == "cap 1,000"


def test_without_full_tables_or_curves_there_are_gaps():
    rows = rows_of([made_record("hash", 500, curve=[])])
    line = rows["hash", "clicks"]
    assert (line["best gain"], line["CPU s to full"], line["fewer params"]) == (None, None, None)


def test_options_that_differ_are_shown_and_those_of_budgets_and_seeds_are_not():
    full, low, high = made_record("full", None), made_record("hash", 500), made_record("hash", 1000)
    full.config.update(lr=0.1, epochs=10, threads=1)
    low.config.update(lr=0.1, method_options={"num_columns": 4}, threads=2)
    high.config.update(lr=0.3, method_options={"num_columns": 4}, threads=2)
    (group,) = group_records([full, low, high])
    table = settings_table(group)
    assert [column.name for column in table.columns] == ["series", "lr"]  # columns are no difference: full has none
    assert [[str(cell) for cell in row] for row in table.rows] == [["full", "0.1"], ["hash", "0.1 / 0.3"]]
    (group,) = group_records([made_record("full", None), made_record("hash", 500)])
    assert settings_table(group).rows == []
