"""Records come back as they were written, and a file is the old one or the new one, never half of one."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.footprint import Footprint
from cce.records import RunRecord, read_records, write_records

ROOT = Path(__file__).resolve().parents[1]
RECORD = RunRecord(
    method="cce",
    seed=3,
    num_params=16_000,
    nbytes=164_512,
    scores={"bce": 0.1 + 0.2, "auc": 0.75},
    seconds=1.5,
    config={"cap": 8_000, "note": "×, ü and\na new line"},
    curve=[{"bce": 0.5, "auc": 0.7}, {"bce": 1 / 3, "auc": 0.75}],
)


def test_tables_come_back_as_footprints_and_are_written_with_what_follows_from_them():
    table = Footprint("user", "cce", 1000, 8, 200, 800, 1000, full_params=8000, full_nbytes=32_000, sizes={"rows": 5})
    line = replace(RECORD, tables=(table,)).to_json()
    assert json.loads(line)["tables"][0]["byte_compression"] == 32_000 / 1800
    assert RunRecord.from_json(line).tables == (table,)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (3, "tables of a record must be a list, got 3"),
        ([3], "a table of a record must be a JSON object, got 3"),
        ([{"name": "user"}], "a footprint must have method, num_embeddings, .*, got {'name': 'user'}"),
    ],
)
def test_tables_that_are_none_are_rejected(tables, message):
    line = json.dumps(json.loads(RECORD.to_json()) | {"tables": tables})
    with pytest.raises((TypeError, ValueError), match=message):
        RunRecord.from_json(line)


@settings(max_examples=50, deadline=None)
@given(bce=st.floats(allow_nan=False, allow_infinity=False), seed=st.integers(), note=st.text())
def test_any_number_and_any_text_come_back(bce, seed, note):
    record = RunRecord("hash", seed, 1, 4, {"bce": bce}, 0.0, config={"note": note})
    line = record.to_json()
    assert len(line.splitlines()) == 1
    assert RunRecord.from_json(line) == record


def strictly(line):
    def fail(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(line, parse_constant=fail)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_written_as_null_and_scores_are_read_as_nan(value):
    record = replace(
        RECORD, scores={"auc": value}, curve=[{"step": 1, "auc": value}], config={"lr": [value]}, events=[{"H2": value}]
    )
    written = strictly(record.to_json())
    assert (written["scores"]["auc"], written["curve"], written["config"]) == (
        None,
        [{"step": 1, "auc": None}],
        {"lr": [None]},
    )
    read = RunRecord.from_json(record.to_json())
    assert math.isnan(read.scores["auc"])
    assert math.isnan(read.curve[0]["auc"])
    assert read.events == [{"H2": None}]
    assert read.to_json() == record.to_json()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_line_with_a_bare_word_for_a_number_is_rejected(word):
    line = RECORD.to_json().replace("0.75", word)
    with pytest.raises(ValueError, match=f"JSON must hold null instead of non-finite numbers, got {word}"):
        RunRecord.from_json(line)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [1]}, "scores of a record must hold numbers by name, got [1]."),
        ({"scores": {"bce": "low"}}, "scores of a record must hold numbers by name, got {'bce': 'low'}."),
        ({"curve": {"step": 1}}, "curve of a record must be a list, got {'step': 1}."),
        ({"curve": [3]}, "a line of curve of a record must hold numbers by name, got 3."),
    ],
)
def test_scores_of_another_kind_are_rejected(changes, message):
    with pytest.raises(TypeError) as raised:
        RunRecord.from_json(json.dumps(json.loads(RECORD.to_json()) | changes))
    assert str(raised.value) == message


def test_a_file_with_a_line_that_is_no_record_names_it(tmp_path):
    (tmp_path / "records.jsonl").write_text(RECORD.to_json() + "\n\n{" + "\n")
    with pytest.raises(ValueError, match=r"^line 3 of .*records\.jsonl must be the record of a run: Expecting"):
        read_records(tmp_path / "records.jsonl")


def test_a_record_of_the_first_format_is_read():
    old = {"method": "hash", "seed": 1, "num_params": 8, "nbytes": 32, "bce": 0.5, "auc": None, "seconds": 2.0}
    read = RunRecord.from_json(json.dumps(old | {"curve": [{"step": 3, "bce": 0.6, "auc": None}]}))
    assert read.scores.keys() == {"bce", "auc"}
    assert read.scores["bce"] == read.curve[0]["bce"] - 0.1 == 0.5
    assert math.isnan(read.scores["auc"])
    assert "bce" not in json.loads(read.to_json())


@pytest.mark.slow
def test_the_records_that_are_kept_are_read():
    paths = sorted((ROOT / "results" / "real").glob("*/records.jsonl"))
    assert len(paths) >= 8
    for path in paths:
        records = read_records(path)
        assert records
        assert all(0 < record.scores["bce"] < 9 and 0.4 < record.scores["auc"] < 1 for record in records), path


def test_fields_of_a_later_version_are_passed_over_and_missing_ones_named():
    later = json.loads(RECORD.to_json()) | {"colour": "red"}
    assert RunRecord.from_json(json.dumps(later)) == RECORD
    del later["seed"], later["seconds"]
    with pytest.raises(ValueError, match=r"^a record must have seed, seconds, got none\.$"):
        RunRecord.from_json(json.dumps(later))


def test_a_file_of_records_is_json_lines(tmp_path):
    records = [RECORD, RunRecord("full", 0, 1, 4, {"bce": 0.5}, 0.1)]
    write_records(iter(records), tmp_path / "runs" / "deep" / "records.jsonl")
    lines = (tmp_path / "runs" / "deep" / "records.jsonl").read_text().split("\n")
    assert [json.loads(line)["method"] for line in lines[:-1]] == ["cce", "full"]
    assert lines[-1] == ""
    assert read_records(tmp_path / "runs" / "deep" / "records.jsonl") == records


def test_records_that_fail_half_way_leave_the_old_file(tmp_path):
    def failing():
        yield RECORD
        raise RuntimeError("the second run died")

    write_records([RECORD], tmp_path / "records.jsonl")
    with pytest.raises(RuntimeError, match="the second run died"):
        write_records(failing(), tmp_path / "records.jsonl")
    assert read_records(tmp_path / "records.jsonl") == [RECORD]


def footprint(**changes):
    sizes = {"num_params": 100, "codebook_nbytes": 400, "pointer_nbytes": 60, "full_params": 999, "full_nbytes": 3996}
    return Footprint(name="t", method="cce", num_embeddings=50, embedding_dim=4, **(sizes | changes))


def test_bytes_in_training_have_all_that_tables_hold_then():
    told = footprint(gradient_nbytes=7, optimizer_nbytes=800, clustering_nbytes=5000)
    record = RunRecord("cce", 0, 100, 460, {}, 1.0, tables=(told,), events=[{"table": "t"}])
    assert record.training_nbytes == 460 + 7 + 800 + 5000
    assert RunRecord.from_json(record.to_json()) == record
    assert record.to_dict()["training_nbytes"] == record.training_nbytes
    assert RunRecord("cce", 0, 100, 460, {}, 1.0).training_nbytes is None


@pytest.mark.parametrize(
    ("config", "events", "nbytes"),
    [({}, [], 400), ({"sparse": True}, [], 0), ({}, [{"table": "t"}], 400 + 460), ({}, [{"table": "other"}], 400)],
)
def test_records_of_before_have_dense_gradients_and_clusterings_of_at_least_new_tables(config, events, nbytes):
    record = RunRecord("cce", 0, 100, 460, {}, 1.0, config=config, tables=(footprint(),), events=events)
    assert record.training_nbytes == 460 + nbytes
