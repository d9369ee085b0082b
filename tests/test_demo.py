"""The demonstration in miniature: three tables, the same rows, and every number accounted for."""

import dataclasses
import json

import pytest
import torch

from cce.demo import METHODS, DemoConfig, demo_table, run_demo, write_report
from cce.records import RunRecord, read_records

pytestmark = pytest.mark.slow

TINY = DemoConfig(
    num_rows=4_000,
    vocabulary_sizes=(300, 200),
    num_clusters=8,
    num_dense=2,
    embedding_dim=8,
    caps=(200, 400),
    epochs=2,
    batch_size=256,
)
SEEDS = 3 * 8  # bytes of a hash function


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    before = torch.get_num_threads()
    yield run_demo(TINY, tmp_path_factory.mktemp("demo"), progress=False)
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def records(outcome):
    return outcome[0]


def test_records_come_in_order(records):
    assert METHODS == ("hash", "cce")
    assert [record.method for record in records] == ["full", "hash", "hash", "cce", "cce"]
    assert [record.config["cap"] for record in records] == [None, 200, 400, 200, 400]


def test_params_and_bytes_by_hand(records):
    full, _, hashed, _, clustered = records
    assert (full.num_params, full.nbytes) == (502 * 8, 502 * 8 * 4)
    assert (hashed.num_params, hashed.nbytes) == (2 * 400, 2 * (400 * 4 + SEEDS))
    maps = 12 * (-(-301 // 64) + -(-201 // 64))  # a bit an id, and a rank for 64 of them
    pointers = clustered.nbytes - 2 * 400 * 4 - maps
    assert clustered.num_params == 2 * 400
    assert 20 * 4 < pointers < 502 * 4  # a byte for each id with a row, and column


def test_a_record_holds_its_settings_and_its_validations(records):
    for record in records:
        assert record.config["batch_size"] == 256
        assert record.config["epochs"] == 2
        assert record.seconds > 0
        assert record.samples_per_second > 0
        is_final = record.method == "cce"  # its curve begins when tables are finalized; refits may follow
        assert [scores["epoch"] for scores in record.curve][: 1 if is_final else 4] == (
            [2] if is_final else [1, 1, 2, 2]
        )
        assert 0.4 < record.scores["auc"] < 1


def test_only_the_table_that_learns_pointers_was_refitted(records):
    assert {record.method for record in records if "refit" in record.seconds_by_part} == {"cce"}


def test_no_table_beats_the_oracle(outcome):
    records, oracle_bce = outcome
    assert all(record.scores["bce"] > oracle_bce for record in records)


def test_it_can_be_run_again_in_its_folder(outcome, tmp_path):
    short = dataclasses.replace(TINY, num_rows=500, epochs=1)
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "mine.txt").write_text("not the demonstration's")
    with pytest.raises((FileExistsError, ValueError)):
        run_demo(short, tmp_path, progress=False)
    assert (tmp_path / "clicks" / "mine.txt").exists()
    first = run_demo(short, tmp_path / "out", progress=False)
    again = run_demo(short, tmp_path / "out", progress=False)
    assert [record.curve for record in first[0]] == [record.curve for record in again[0]]
    other = run_demo(dataclasses.replace(short, seed=1), tmp_path / "out", progress=False)
    assert other[1] != first[1]


# -- the table and the report ------------------------------------------------------------------------------------------

FULL_CURVE = [{"epoch": 1, "bce": 0.5}, {"epoch": 1, "bce": 0.6}, {"epoch": 2, "bce": 0.4}]
MADE_UP = [
    RunRecord(
        "full",
        0,
        400_000,
        1_600_000,
        {"bce": 0.4, "auc": 0.9},
        10.04,
        {"cap": 8_000},
        curve=FULL_CURVE,
        samples_per_second=5_000.4,
    ),
    RunRecord(
        "cce",
        0,
        16_000,
        160_000,
        {"bce": 0.45678, "auc": 0.87654},
        2.0,
        {"cap": 8_000, "x": None},
        curve=FULL_CURVE[:1],
        samples_per_second=12.0,
    ),
]


def test_the_table_compares_with_the_first_record():
    lines = demo_table(MADE_UP, 0.3).splitlines()
    assert [" ".join(line.split()) for line in (lines[0], *lines[2:])] == [
        "table params fewer bytes fewer test BCE test AUC rows/s seconds",
        "full 400,000 1.0× 1.6 MB 1.0× 0.4000 0.9000 5,000 10.0",
        "cce 16,000 25.0× 160.0 kB 10.0× 0.4568 0.8765 12 2.0",
        "(oracle) 0.3000",
    ]


def test_the_report_and_the_records_are_written_and_come_back(tmp_path):
    path = write_report(MADE_UP, 0.3, tmp_path / "runs" / "demo")
    assert path == tmp_path / "runs" / "demo" / "report.md"
    assert {file.name for file in path.parent.iterdir()} == {"report.md", "records.jsonl"}
    assert read_records(path.parent / "records.jsonl") == MADE_UP
    for line in (path.parent / "records.jsonl").read_text().splitlines():
        assert json.loads(line)["config"]["cap"] == 8_000
    text = path.read_text()
    assert text.startswith("# Demonstration: hidden clusters\n\n")
    assert demo_table(MADE_UP, 0.3, markdown=True) in text
    assert "| epoch | full | cce-8000 |\n| :-- | --: | --: |\n| 1 | 0.5000 | 0.5000 |\n| 2 | 0.4000 |  |\n" in text
    assert text.endswith("## Settings of the last run\n\ncap 8000\n")
