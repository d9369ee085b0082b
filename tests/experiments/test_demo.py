"""The demonstration in miniature: three tables, the same rows, and every number accounted for."""

import dataclasses
import json

import pytest
import torch

from cce.data import PlantedClusters
from cce.experiments.demo import METHODS, DemoConfig, Recommender, demo_table, run_demo, write_report
from cce.models import GMF
from cce.records import RunRecord, read_records

TINY = DemoConfig(
    num_users=300,
    num_items=200,
    num_rows=4_000,
    num_clusters=8,
    embedding_dim=8,
    cap=400,
    num_epochs=2,
    num_clusterings=2,
    batch_size=256,
)
SEEDS = 3 * 8  # bytes of a hash function


@pytest.fixture(scope="module")
def outcome():
    return run_demo(TINY, progress=False)


@pytest.fixture(scope="module")
def records(outcome):
    return outcome[0]


def scores(records):
    return {record.method: record.curve for record in records}


def test_three_records_come_in_order(records):
    assert METHODS == ("full", "hash", "cce")
    assert [record.method for record in records] == ["full", "hash", "cce"]


def test_params_and_bytes_by_hand(records):
    full, hashed, clustered = records
    assert (full.num_params, full.nbytes) == (500 * 8, 500 * 8 * 4)
    assert (hashed.num_params, hashed.nbytes) == (2 * 400, 2 * (400 * 4 + SEEDS))
    pointers = 500 * 4  # a byte for each id and column
    assert (clustered.num_params, clustered.nbytes) == (2 * 400, 2 * 400 * 4 + pointers + 2 * 8 * SEEDS)


def test_a_record_holds_its_settings_and_a_score_for_each_epoch(records):
    for record in records:
        assert record.config == dataclasses.asdict(TINY)
        assert record.seed == 0
        assert record.seconds > 0
        assert len(record.curve) == 2
        assert record.bce == min(epoch["bce"] for epoch in record.curve)
        assert {"bce": record.bce, "auc": record.auc} in record.curve
        assert 0.4 < record.auc < 1


def test_no_table_beats_the_oracle(outcome):
    records, oracle_bce = outcome
    g = torch.Generator().manual_seed(0)
    clicks = PlantedClusters((300, 200), num_clusters=8, generator=g)
    clicks.sample(4_000, generator=g)
    assert oracle_bce == clicks.sample(500, generator=g).oracle_bce
    assert all(record.bce > oracle_bce for record in records)


def test_equal_seeds_give_equal_scores_on_any_number_of_threads(num_threads, outcome):
    num_threads(1)
    again, oracle_bce = run_demo(TINY, progress=False)
    assert scores(again) == scores(outcome[0])
    assert oracle_bce == outcome[1]


def test_other_seeds_give_other_scores():
    short = dataclasses.replace(TINY, num_rows=400, num_epochs=1, num_clusterings=1)
    one, two = (run_demo(dataclasses.replace(short, seed=seed), progress=False) for seed in (0, 1))
    assert one[1] != two[1]
    for first, second in zip(one[0], two[0], strict=True):
        assert first.curve != second.curve


def test_clustering_changes_the_table_that_can_cluster_and_no_other():
    short = dataclasses.replace(TINY, num_rows=1_000, num_epochs=3)
    once, twice = (
        scores(run_demo(dataclasses.replace(short, num_clusterings=times), progress=False)[0]) for times in (1, 2)
    )
    assert once["full"] == twice["full"]
    assert once["hash"] == twice["hash"]
    assert once["cce"][0] == twice["cce"][0]
    assert once["cce"][2] != twice["cce"][2]  # another clustering lies between


def test_where_clusters_are_planted_clustering_finds_what_hashing_mixes():
    config = DemoConfig(
        num_users=200,
        num_items=150,
        num_rows=16_000,
        num_clusters=4,
        embedding_dim=8,
        cap=160,
        num_epochs=4,
        batch_size=512,
        learning_rate=0.03,
    )
    (full, hashed, clustered), oracle_bce = run_demo(config, progress=False)
    assert clustered.num_params == hashed.num_params == 320
    assert oracle_bce < full.bce < clustered.bce < hashed.bce - 0.05
    assert clustered.auc > hashed.auc + 0.05


def test_the_recommender_stacks_one_vector_of_each_feature():
    users, items = torch.nn.Embedding(5, 4), torch.nn.Embedding(7, 4)
    ids = torch.tensor([[0, 6], [4, 1], [2, 2]])
    expected = (users(ids[:, 0]) * items(ids[:, 1])).sum(-1)
    torch.testing.assert_close(Recommender([users, items], GMF(4))(ids), expected)


def test_a_cap_too_small_says_the_smallest_that_works():
    with pytest.raises(ValueError, match="num_params must be at least 8 for method 'hash' of these sizes, got 7"):
        run_demo(dataclasses.replace(TINY, cap=7, num_epochs=1), progress=False)


# -- the table and the report ------------------------------------------------------------------------------------------

MADE_UP = [
    RunRecord("full", 0, 400_000, 1_600_000, 0.4, 0.9, 10.04, {"cap": 8_000}, [{"bce": 0.5}, {"bce": 0.4}]),
    RunRecord("cce", 0, 16_000, 160_000, 0.45678, 0.87654, 2.0, {"cap": 8_000}, [{"bce": 0.45678}, {"bce": 0.46}]),
]


def test_the_table_compares_with_the_first_record():
    lines = demo_table(MADE_UP, 0.3).splitlines()
    assert [" ".join(line.split()) for line in (lines[0], *lines[2:])] == [
        "table params fewer bytes fewer test BCE test AUC seconds",
        "full 400,000 1.0× 1.6 MB 1.0× 0.4000 0.9000 10.0",
        "cce 16,000 25.0× 160.0 kB 10.0× 0.4568 0.8765 2.0",
        "(oracle) 0.3000",
    ]


def test_the_report_and_the_records_are_written_and_come_back(tmp_path):
    path = write_report(MADE_UP, 0.3, tmp_path / "runs" / "demo")
    assert path == tmp_path / "runs" / "demo" / "report.md"
    assert {file.name for file in path.parent.iterdir()} == {"report.md", "records.jsonl"}
    assert read_records(path.parent / "records.jsonl") == MADE_UP
    for line in (path.parent / "records.jsonl").read_text().splitlines():
        assert json.loads(line)["config"] == {"cap": 8_000}
    text = path.read_text()
    assert text.startswith("# Demonstration: planted clusters\n\n")
    assert demo_table(MADE_UP, 0.3, markdown=True) in text
    assert "| epoch | full | cce |\n| :-- | --: | --: |\n| 1 | 0.5000 | 0.4568 |\n| 2 | 0.4000 | 0.4600 |\n" in text
    assert text.endswith("## Settings\n\ncap 8000\n")


def test_a_report_of_a_real_run_has_its_scores(records, outcome, tmp_path):
    text = write_report(records, outcome[1], tmp_path).read_text()
    assert read_records(tmp_path / "records.jsonl") == records
    for record in records:
        assert f"| {record.method} | {record.num_params:,} |" in text
        assert f"| {record.bce:.4f} | {record.auc:.4f} |" in text
    assert "num_users 300, num_items 200, num_rows 4000" in text
