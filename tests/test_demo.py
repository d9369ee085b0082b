"""The demonstration in miniature: full, `cce` in two sizes from one training, `hash`, each number accounted for."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cce.data import prepare
from cce.demo import demo_table, run_demo
from cce.records import RunRecord, read_records
from helpers.raw_files import write_csv

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def outcome(folder):
    before = torch.get_num_threads()
    yield run_demo(folder, num_rows=4_000, progress=False)
    torch.set_num_threads(before)


def test_cce_is_trained_once_and_served_in_every_size(outcome, folder):
    records, oracle_bce = outcome
    full, small, middle, large, hashed = records
    assert [record.method for record in records] == ["full", "cce", "cce", "cce", "hash"]
    assert [record.config["bits"] for record in (small, middle, large)] == [4, 8, 16]
    assert small.seconds_by_part["train"] == large.seconds_by_part["train"]
    assert small.curve_before_finalize == large.curve_before_finalize
    assert (full.num_params, full.nbytes) == (26_104 * 16, 26_104 * 16 * 4)
    assert small.nbytes <= middle.nbytes <= large.nbytes < full.nbytes
    assert 0.9 * middle.nbytes < hashed.nbytes <= middle.nbytes
    assert all(0.4 < record.scores["auc"] < 1 and record.scores["bce"] > oracle_bce for record in records)
    assert not any("refit" in record.seconds_by_part for record in records)  # which would depend on the clock
    assert read_records(folder / "records.jsonl") == records


def test_it_can_be_run_again_in_its_folder_and_keeps_what_is_not_its_own(tmp_path):
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "mine.txt").write_text("not the demonstration's")
    with pytest.raises((FileExistsError, ValueError)):
        run_demo(tmp_path, num_rows=500, progress=False)
    assert (tmp_path / "clicks" / "mine.txt").exists()
    first = run_demo(tmp_path / "out", num_rows=500, progress=False)
    again = run_demo(tmp_path / "out", num_rows=500, progress=False)
    assert [record.curve for record in first[0]] == [record.curve for record in again[0]]


def test_flights_are_the_rows_and_cce_keeps_their_score_in_a_fraction_of_the_bytes(tmp_path, monkeypatch):
    monkeypatch.delenv("CCE_DATA", raising=False)
    (full, _, middle, _, hashed), oracle_bce = run_demo(tmp_path, progress=False)
    assert oracle_bce is None
    assert 0.44 < full.scores["bce"] < 0.46
    assert middle.scores["bce"] < full.scores["bce"] + 0.002
    assert middle.nbytes < full.nbytes / 25
    assert hashed.scores["bce"] > full.scores["bce"] + 0.05


def test_real_ratings_are_taken_where_they_are_at_hand(tmp_path, monkeypatch):
    ratings = [(n % 3 % 2, n % 1_900, n * 7 % 1_800) for n in range(6_000)]
    table = prepare(write_csv(tmp_path / "a.csv", ("label", "c0", "c1"), ratings), tmp_path / "as-csv",
                    label="label", categorical=["c0", "c1"], progress=False)  # fmt: skip
    pq.write_table(pa.table(dict(zip(("label", "c0", "c1"), map(list, zip(*ratings, strict=True)), strict=True))),
                   tmp_path / "ml1m.parquet")  # fmt: skip
    monkeypatch.setenv("CCE_DATA", str(tmp_path))
    records, oracle_bce = run_demo(tmp_path / "out", progress=False)
    assert oracle_bce is None
    assert records[0].num_params == sum(table.schema.vocabulary_sizes.values()) * 16
    assert "(oracle)" not in demo_table(records, None)


def test_the_table_compares_with_the_first_record():
    scores, parts = {"bce": 0.45678, "auc": 0.87654}, {"train": 20.0, "finalize": 3.04}
    made_up = [
        RunRecord("full", 0, 400_000, 1_600_000, {"bce": 0.4, "auc": 0.9}, 10.04, {}),
        RunRecord("cce", 0, 16_000, 160_000, scores, 23.04, {"bits": 8.0}, seconds_by_part=parts),
        RunRecord("cce", 0, 16_000, 80_000, scores, 23.04, {"bits": 4.0}, seconds_by_part=parts),
    ]
    lines = demo_table(made_up, 0.3).splitlines()
    assert [" ".join(line.split()) for line in (lines[0], *lines[2:])] == [
        "table bytes fewer test BCE test AUC seconds",
        "full 1.6 MB 1.0× 0.4000 0.9000 10.0",
        "cce, 8 bits per id 160.0 kB 10.0× 0.4568 0.8765 23.0",
        "cce, 4 bits per id 80.0 kB 20.0× 0.4568 0.8765 3.0",
        "(oracle) 0.3000",
    ]
