"""Groups, series and budgets, and the factors between them."""

from dataclasses import replace

import pytest

from cce_lab.report.factors import Kind
from cce_lab.report.groups import WORDS, full_size_of, group_records, size_of, with_sources
from helpers.made_records import CAPS, DIM, SIZES, made_record, made_records


def one_group(records):
    (group,) = group_records(records)
    return group


def test_seeds_of_a_budget_stand_together_and_the_full_table_comes_first():
    group = one_group(made_records(("hash", "cce")))
    assert list(group.series) == ["full", "cce", "hash"]
    assert [budget.label for budget in group.series["cce"]] == [f"cap {cap:,}" for cap in CAPS]
    assert [record.seed for record in group.series["cce"][0].records] == [0, 1, 2]
    assert group.title == "clicks, dlrm, 10 epochs"
    assert group.slug == "clicks-dlrm-10-epochs"


def test_data_model_and_epochs_make_a_group():
    records = [made_record("cce", 500, seed) for seed in range(4)]
    records[1].config["data"] = "/elsewhere/books/"
    records[2].config["epochs"] = 1
    records[3].config["model"] = "path/to/own.py:Net"
    titles = [
        "books, dlrm, 10 epochs",
        "clicks, dlrm, 1 epoch",
        "clicks, dlrm, 10 epochs",
        "clicks, own.py:Net, 10 epochs",
    ]
    assert [group.title for group in group_records(records)] == titles


def test_a_run_that_starts_from_another_belongs_to_its_group():
    pq = made_record("pq", 500)
    pq.config.update(epochs=0, start_from="/sweep/runs/full-None-0")
    alone = made_record("pq", 1000)
    alone.config.update(epochs=0, start_from="/sweep/runs/gone")
    groups = group_records(with_sources([made_record("full", None), pq, alone]))
    assert [(group.key[2], list(group.series)) for group in groups] == [(0, ["pq"]), (10, ["full", "pq"])]


def test_budgets_in_words():
    records = [
        made_record("cce", 500),
        made_record("cce", 500, bce=0.1),
        made_record("hash", 500),
        made_record("robe", 500),
    ]
    for record, budget in zip(
        records, ({"num_params": 9000}, {"compression": 12.5}, {}, {"nbytes": 1500}), strict=True
    ):
        del record.config["cap"]
        record.config.update(budget)
    labels = {budget.series + " " + budget.label for budget in one_group(records).budgets}
    assert labels == {"cce 9,000 params", "cce 12.5×", f"hash {records[2].num_params:,} params", "robe 1,500 bytes"}


def test_sizes_of_all_tables_and_of_the_largest():
    record = made_record("cce", 8000)
    largest = SIZES["C3"] * DIM
    assert size_of(record, "params") == record.num_params == 3 * 8000 + 400 * DIM + 30 * DIM
    assert size_of(record, "bytes") == record.nbytes == 4 * record.num_params + 4 * (200_000 + 60_000 + 9_000)
    assert size_of(record, "largest") == 8000
    assert full_size_of(record, "params") == sum(SIZES.values()) * DIM
    assert full_size_of(record, "largest") == largest
    assert full_size_of(record, "bytes") == 4 * sum(SIZES.values()) * DIM


def test_factors_by_all_measures():
    """hash meets the baseline half way, in logarithms, between two caps."""
    low, high = made_record("hash", 8000, bce=0.46), made_record("hash", 16_000, bce=0.44)
    full = made_record("full", None, bce=0.45)
    group = one_group([full, low, high])
    assert group.baseline_score == 0.45
    for measure in WORDS:
        middle = (size_of(low, measure) * size_of(high, measure)) ** 0.5
        factor = group.factor("hash", measure)
        assert factor.kind is Kind.MEASURED
        assert factor.value == pytest.approx(size_of(full, measure) / middle)


def test_without_a_full_table_there_is_nothing_to_compare_with():
    factor = one_group([made_record("cce", 500)]).factor("cce", "params")
    assert (factor.kind, factor.notes) == (Kind.UNKNOWN, ("there is no full table to compare with",))


def test_without_ledgers_the_largest_table_is_not_known():
    records = [replace(record, tables=()) for record in made_records(("cce",))]
    group = one_group(records)
    assert group.factor("cce", "params").kind is Kind.MEASURED
    assert group.factor("cce", "largest").notes == ("the records have no memory summary of tables",)


def test_a_baseline_without_a_score_is_none():
    group = one_group([made_record("full", None, bce=float("nan")), made_record("cce", 500)])
    assert group.baseline_score is None
    assert group.factor("cce", "params").kind is Kind.UNKNOWN


def test_a_series_of_one_seed_is_compared_with_the_full_table_of_that_seed():
    """The full table of seed 0 is worse than the mean of all three: by that mean hash would never get there."""
    full = [made_record("full", None, seed, bce=bce) for seed, bce in enumerate((0.46, 0.44, 0.44))]
    runs = [made_record("hash", 500, bce=0.47), made_record("hash", 2_000, bce=0.45)]
    group = one_group([*full, *runs])
    factor = group.factor("hash", "largest")
    assert (factor.kind, factor.num_seeds) == (Kind.MEASURED, 1)
    assert factor.value == pytest.approx(200_000 * DIM / (496 * 2000) ** 0.5)
    assert group.against_full(group.series["hash"][1]) == [pytest.approx(-0.01)]
    assert group.against_full(group.series["full"][0]) == [0, 0, 0]


def test_metrics_are_those_of_the_records_and_the_leading_one_comes_first():
    scores = {"auc": 0.7, "profit": 3.0, "calibration": 0.5}
    records = [
        made_record("cce", cap, scores=scores, curve=[{"step": 1, "epoch": 1, "ece": 0.1}]) for cap in (500, 800)
    ]
    group = one_group(records)
    assert [info.name for info in group.metrics] == ["auc", "profit", "calibration", "ece"]
    for record in records:
        record.config["metrics"] = ["calibration"]
    group = one_group(records)
    assert [info.title for info in group.metrics] == ["calibration", "AUC", "profit", "ECE"]


def test_factors_are_of_the_leading_metric():
    """By AUC, of which more is better, hash meets the full table half way between two caps."""
    low, high = made_record("hash", 8000, scores={"auc": 0.70}), made_record("hash", 16_000, scores={"auc": 0.72})
    full = made_record("full", None, scores={"auc": 0.71})
    group = one_group([full, low, high])
    middle = (size_of(low, "params") * size_of(high, "params")) ** 0.5
    assert (group.leading.name, group.baseline_score) == ("auc", 0.71)
    assert group.factor("hash", "params").value == pytest.approx(size_of(full, "params") / middle)
    assert group.against_full(group.series["hash"][0]) == [pytest.approx(-0.01)]


def test_the_full_table_is_found_by_its_method_and_the_one_of_that_name_goes_first():
    records = [made_record("full", None, series=name, bce=bce) for name, bce in (("dlrm start", 0.44), ("old", 0.46))]
    runs = [made_record("hash", 500, bce=0.45), made_record("hash", 1000, bce=0.43)]
    group = one_group([*runs, *records])
    assert (group.full_series, group.baseline_score) == ("dlrm start", 0.44)  # the strongest rival
    assert group.factor("hash", "params").kind is Kind.MEASURED
    group = one_group([*runs, *records, made_record("full", None, bce=0.47)])
    assert (group.full_series, list(group.series)[:3]) == ("full", ["dlrm start", "full", "old"])


def test_a_run_that_starts_from_a_full_table_needs_its_memory():
    record = made_record("pq", 500)
    alone = size_of(record, "training")
    record.config["source_training_nbytes"] = 10 * alone
    assert size_of(record, "training") == 10 * alone
    record.config["source_training_nbytes"] = 1
    assert size_of(record, "training") == alone
