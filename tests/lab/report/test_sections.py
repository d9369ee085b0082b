"""Sections: all that is told about a group."""

import json

from cce_lab.report.groups import Collected, group_records
from cce_lab.report.writing import caution, headline, make_sections
from helpers.made_records import made_record, made_records


def test_a_section_for_each_group_with_the_same_colours():
    other = made_record("cce", 500, bce=0.3)
    other.config["data"] = "data/books"
    books, clicks = make_sections(Collected(records=[*made_records(), other]))
    assert (books.group.key[0], clicks.group.key[0]) == ("books", "clicks")
    assert books.styles == clicks.styles
    assert {name: table.name for name, table in clicks.tables.items()} == {
        name: f"clicks-dlrm-10-epochs-{name}" for name in ("summary", "factors")
    }
    assert books.headline.startswith("No run with full tables")


def test_plain_data_is_json():
    records = [made_record("cce", 500, bce=float("nan")), *made_records(("hash",))]
    (section,) = make_sections(Collected(records=records))
    told = json.loads(json.dumps(section.to_dict(), allow_nan=False))
    assert (told["data"], told["model"], told["epochs"]) == ("clicks", "dlrm", 10)
    assert (told["metric"], round(told["baseline"], 3)) == ("bce", 0.452)
    assert {row["series"] for row in told["factors"]} == {"cce", "hash"}
    assert len(told["summary"]) == 1 + 1 + 8


def sentence(*records):
    (group,) = group_records(records)
    return headline(group)


FULL = made_record("full", None, bce=0.45)


def test_the_best_and_the_next():
    text = sentence(*made_records(("cce", "hash")))
    assert text.startswith(
        "hash reaches the full table's BCE with 26.4× fewer training bytes "
        "(26.4× fewer served bytes, 26.4× fewer params); next best, cce: 18.8×."
    )


def test_when_another_wins_that_is_said():
    hash_runs = [made_record("hash", 500, bce=0.46), made_record("hash", 1000, bce=0.44)]
    robe_runs = [made_record("robe", 1000, bce=0.46), made_record("robe", 2000, bce=0.44)]
    cce_runs = [made_record("cce", 2000, bce=0.46), made_record("cce", 4000, bce=0.44)]
    text = sentence(FULL, *hash_runs, *robe_runs, *cce_runs)
    assert text.startswith("hash reaches the full table's BCE with ")
    assert "next best, robe: " in text
    assert text.endswith("×. One seed.")


def test_one_that_stands_alone():
    reaching = [made_record("hash", 500, bce=0.46), made_record("hash", 1000, bce=0.44)]
    assert sentence(FULL, *reaching).endswith("fewer params). One seed.")
    again = [made_record("hash", 500, 1, bce=0.46), made_record("hash", 1000, 1, bce=0.44)]
    assert sentence(FULL, *reaching, *again).endswith("fewer params).")
    others = [made_record(method, cap, bce=0.5) for method in ("cce", "robe") for cap in (500, 1000)]
    assert sentence(FULL, *reaching, *others).endswith("fewer params). One seed.")


def test_when_nobody_gets_there():
    text = sentence(FULL, made_record("cce", 500, bce=0.5), made_record("cce", 1000, bce=0.48))
    assert text.startswith(
        "No method reaches the full table's BCE 0.4500 within the sizes tried. Best: cce, cap 1,000, "
    )


def test_without_a_full_table():
    assert sentence(made_record("cce", 500, bce=0.5)) == (
        "No run with full tables, so no size is known that reaches their score; "
        "factors compare sizes only. Best: cce, cap 500, BCE 0.5000."
    )
    assert sentence(made_record("cce", 500, bce=float("nan"))).endswith("None has a score.")


def test_the_sentence_is_about_the_leading_metric():
    scored = [("full", None, 0.71), ("cce", 500, 0.70), ("cce", 2_000, 0.72), ("hash", 500, 0.6), ("hash", 2_000, 0.65)]
    records = [made_record(method, cap, scores={"auc": auc}) for method, cap, auc in scored]
    assert sentence(*records).startswith("cce reaches the full table's AUC with ")
    assert "Best: hash, cap 2,000, AUC 0.6500." in sentence(records[0], *records[3:])
    assert sentence(records[0]) == "Only the full table has been run: AUC 0.7100."


def warning(*curves, epochs=10, **config):
    """What is said of full tables with these validations, one for each seed."""
    records = [made_record("full", None, seed, bce=min(curve)) for seed, curve in enumerate(curves)]
    for record, curve in zip(records, curves, strict=True):
        record.curve[:] = [{"step": 10 * step, "epoch": 1, "bce": bce} for step, bce in enumerate(curve, start=1)]
        record.config.update(epochs=epochs, **config)
    (group,) = group_records(records)
    return caution(group)


def test_a_full_table_that_was_still_improving_is_a_weak_rival():
    done, not_done = (0.5, 0.4, 0.6), (0.5, 0.4, 0.3)
    assert warning(done, done) == ""
    assert warning(not_done).startswith("The full table was best at its last validation in its only run: it may not")
    assert "in 1 of its 2 runs" in warning(not_done, done)
    assert warning(not_done, epochs=1) == ""
    assert warning(not_done, lr_schedule="cosine") == ""
    assert warning((0.5,)) == ""
    assert warning((0.5, float("nan"))) == ""


def test_a_factor_that_not_all_seeds_reach_is_not_quoted_as_if_they_did():
    full = [made_record("full", None, seed, bce=0.45) for seed in range(2)]
    some = [made_record("hash", 500, seed, bce=0.47) for seed in range(2)]
    some += [made_record("hash", 900, seed, bce=bce) for seed, bce in enumerate((0.41, 0.455))]
    text = sentence(*full, *some)
    assert text.startswith("hash reaches the full table's BCE with ")
    assert text.endswith("fewer params), in the mean: 1 of 2 seeds do.")
    every = [made_record("robe", cap, seed, bce=bce) for cap, bce in ((900, 0.47), (4000, 0.44)) for seed in range(2)]
    text = sentence(*full, *some, *every)
    assert text.startswith("robe reaches")  # a smaller factor, but both seeds
    assert text.endswith(", in the mean: 1 of 2 seeds do.")
