"""What a report is pointed at: files, sweeps, runs that are finished, under way, failed, cut short."""

import json
import math
import os
import time

import pytest

from cce.records import RunRecord, write_records
from cce_lab.report.groups import group_records
from cce_lab.report.reading import SILENT, collect, num_planned, read_live, read_plan, series_by_name
from helpers.made_records import made_record, made_records

CONFIG = 'data = "data/clicks"\nmodel = "dlrm"\nmethod = "hash"\ncap = 500\nepochs = 10\nseed = 1\n'
LINES = (
    {"kind": "train", "step": 100, "loss": 0.5},
    {"kind": "validation", "step": 120, "bce": 0.48, "auc": 0.7},
    {"kind": "cluster", "step": 120, "churn": 0.9},
)
RECIPE = """
[sweep]
methods = ["full", "cce"]
caps = [500, 1000]
seeds = [0, 1]
[series."CCE half"]
method = "cce"
[expected]
source = "a paper"
[expected.compression]
cce = 10
"""


def start_run(folder, *, config=CONFIG, lines=LINES):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.slow
def test_a_file_of_records(tmp_path):
    write_records(made_records(), tmp_path / "any.jsonl")
    found = collect([tmp_path / "any.jsonl"])
    assert len(found.records) == 123
    assert found.is_finished
    assert found.live == []


def test_a_sweep_is_read_once_though_it_tells_of_its_runs_twice(tmp_path):
    named, bare = made_record("cce", 500, series="CCE half"), made_record("cce", 500, name="", series="")
    write_records([named], tmp_path / "records.jsonl")
    write_records([bare], tmp_path / "runs" / "cce-500-0" / "record.jsonl")
    found = collect([tmp_path])
    assert [record.series for record in found.records] == ["CCE half"]
    again = collect([tmp_path / "runs", tmp_path])
    assert [record.series for record in again.records] == ["CCE half"]


def test_runs_that_differ_in_anything_are_all_kept(tmp_path):
    records = [made_record("cce", 500, seed) for seed in range(3)]
    write_records([*records, made_record("cce", 500, 0, bce=0.3)], tmp_path / "records.jsonl")
    assert len(collect([tmp_path]).records) == 4


def test_a_run_that_is_under_way(tmp_path):
    start_run(tmp_path / "runs" / "hash-1")
    found = collect([tmp_path])
    (run,) = found.live
    assert (run.name, run.config["cap"], run.step, run.is_running) == ("hash-1", 500, 120, True)
    assert [line["bce"] for line in run.of_kind("validation")] == [0.48]
    assert not found.is_finished
    assert found.num_running == 1


def test_a_finished_run_is_not_under_way(tmp_path):
    folder = start_run(tmp_path / "run")
    write_records([made_record("hash", 500, 1)], folder / "record.jsonl")
    found = collect([tmp_path])
    assert (len(found.records), found.live) == (1, [])


def test_a_run_that_the_sweep_has_recorded_is_not_under_way(tmp_path):
    start_run(tmp_path / "runs" / "hash-500-1")
    write_records([made_record("hash", 500, 1)], tmp_path / "records.jsonl")
    assert collect([tmp_path]).live == []


def test_a_run_of_the_same_name_elsewhere_is_under_way(tmp_path):
    start_run(tmp_path / "b" / "runs" / "hash-500-1")
    write_records([made_record("hash", 500, 1)], tmp_path / "a" / "records.jsonl")
    assert [run.name for run in collect([tmp_path]).live] == ["hash-500-1"]


def test_a_run_s_own_record_gets_its_name_from_the_folder_and_its_series_from_the_recipe(tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    write_records([made_record("cce", 500, name="")], tmp_path / "runs" / "cce-half-cap500-seed0" / "record.jsonl")
    (record,) = collect([tmp_path]).records
    assert (record.name, record.series) == ("cce-half-cap500-seed0", "CCE half")


def test_a_failed_run_says_why(tmp_path):
    folder = start_run(tmp_path / "run")
    (folder / "error.txt").write_text("Traceback\n  line\nValueError: too small\n")
    found = collect([tmp_path])
    assert found.live[0].failure == "ValueError: too small"
    assert not found.live[0].is_running
    assert found.is_finished  # nothing more comes of it


def test_a_run_whose_log_is_old_is_silent(tmp_path):
    folder = start_run(tmp_path / "run")
    then = time.time() - 2 * SILENT
    os.utime(folder / "metrics.jsonl", (then, then))
    found = collect([tmp_path])
    assert found.live[0].idle > SILENT
    assert found.num_running == 0
    assert not found.is_finished  # it may be resumed


def test_a_log_that_was_cut_short_is_read_as_far_as_it_goes(tmp_path):
    folder = start_run(tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    notes = []
    assert len(read_live(folder, notes).lines) == len(LINES)
    assert notes == []


def test_a_damaged_line_in_the_middle_of_a_log_is_noted_and_the_rest_is_read(tmp_path):
    folder = start_run(tmp_path / "run")
    log = folder / "metrics.jsonl"
    log.write_text('{"kind": "tr\n' + log.read_text())
    found = collect([tmp_path])
    assert len(found.live[0].lines) == len(LINES)
    assert found.notes == [f'line 1 of {log} must be JSON with a kind and a step, got b\'{{"kind": "tr\'.']


def test_a_run_without_a_readable_configuration_has_just_begun(tmp_path):
    assert read_live(start_run(tmp_path / "run", config="data = ["), []) is None


def test_a_recipe_tells_what_is_expected_of_whom_and_how_many_runs_there_will_be(tmp_path):
    sweep = tmp_path / "one"
    write_records([made_record("cce", 500)], sweep / "records.jsonl")
    (sweep / "recipe.toml").write_text(RECIPE)
    start_run(sweep / "runs" / "cce-half-cap500-seed0")
    other = made_record("cce", 500, bce=0.1)
    other.config["data"] = "data/other"
    write_records([other], tmp_path / "two" / "records.jsonl")
    found = collect([tmp_path])
    assert found.expected == {("clicks", "dlrm", 10): {"source": "a paper", "compression": {"cce": 10}}}
    assert found.num_planned == 2 * (1 + 2 + 2)
    assert found.live[0].series == "CCE half"
    assert not found.is_finished


def test_a_recipe_that_is_no_toml_is_a_note(tmp_path):
    write_records([made_record("cce", 500)], tmp_path / "records.jsonl")
    (tmp_path / "recipe.toml").write_text("[sweep")
    assert collect([tmp_path]).notes == [f"{tmp_path}/recipe.toml cannot be read as TOML."]


def test_old_records_without_ledger_and_events_are_read(tmp_path):
    short = {"method": "cce", "seed": 0, "num_params": 5, "nbytes": 20, "bce": None, "auc": 0.5, "seconds": 1.0}
    (tmp_path / "records.jsonl").write_text(json.dumps(short | {"from_the_future": 1}) + "\n")
    (record,) = collect([tmp_path]).records
    assert math.isnan(record.scores["bce"])
    assert record.tables == ()


@pytest.mark.parametrize("line", ["{", "[1]", '{"method": "cce"}', '"word"'])
def test_a_line_that_is_no_record_is_rejected_by_its_number(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_text(made_record("cce", 500).to_json() + f"\n{line}\n")
    with pytest.raises(ValueError, match=r"records\.jsonl:2 is not a record of a run: "):
        collect([tmp_path])


def test_a_last_line_without_an_end_is_left_out_with_a_note(tmp_path):
    text = made_record("cce", 500).to_json()
    (tmp_path / "records.jsonl").write_text(text + "\n" + text[:50])
    found = collect([tmp_path])
    assert len(found.records) == 1
    assert found.notes == [f"{tmp_path}/records.jsonl:2 was cut short, and is left out."]


def test_a_folder_without_runs_is_rejected_unless_they_are_waited_for(tmp_path):
    with pytest.raises(ValueError, match="there are no runs in "):
        collect([tmp_path])
    assert collect([tmp_path], may_be_empty=True).num_runs == 0


def test_a_path_that_is_not_there_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not there"):
        collect([tmp_path / "nowhere"])


def test_reports_and_checkpoints_are_not_searched(tmp_path):
    write_records([made_record("cce", 500)], tmp_path / "records.jsonl")
    write_records([made_record("cce", 1000)], tmp_path / "report" / "records.jsonl")
    write_records([made_record("cce", 2000)], tmp_path / "checkpoints" / "records.jsonl")
    assert len(collect([tmp_path]).records) == 1


def test_a_run_that_starts_from_another_is_compared_with_that_of_its_own_file(tmp_path):
    files = []
    for epochs in (1, 8):
        config = {"data": "clicks", "model": "dlrm"}
        full = RunRecord(
            "full", 0, 100, 400, {"bce": 0.5, "auc": 0.7}, 1.0 + epochs, config | {"epochs": epochs}, name="full-seed0"
        )
        own = config | {"epochs": 0, "start_from": f"/sweep{epochs}/runs/full-seed0", "cap": 50}
        pq = RunRecord("pq", 0, 50, 200, {"bce": 0.6, "auc": 0.7}, 1.0 + epochs, own, name="pq-cap50-seed0")
        files.append(tmp_path / f"{epochs}.jsonl")
        write_records([full, pq], files[-1])
    groups = group_records(collect(files).records)
    assert [(group.key[2], sorted(group.series)) for group in groups] == [(1, ["full", "pq"]), (8, ["full", "pq"])]


def test_series_of_a_recipe_are_compared_though_one_has_epochs_of_its_own(tmp_path):
    records = [made_record("full", None), made_record("cce", 500)]
    for record, epochs in zip(records, (8, 2), strict=True):
        record.config["epochs"] = epochs
    write_records(records, tmp_path / "records.jsonl")
    assert [group.key[2] for group in group_records(collect([tmp_path]).records)] == [2, 8]
    (tmp_path / "recipe.toml").write_text("[train]\nepochs = 8\n")
    assert [group.key[2] for group in group_records(collect([tmp_path]).records)] == [8]


def test_a_run_that_starts_from_another_of_the_file_held_at_least_what_that_one_did(tmp_path):
    full, pq = made_record("full", None), made_record("pq", 500)
    pq.config["start_from"] = f"/sweep/runs/{full.name}"
    write_records([full, pq], tmp_path / "records.jsonl")
    (group,) = group_records(collect([tmp_path]).records)
    assert group.series["pq"][0].size("training") == group.full_size("training") == full.training_nbytes
    assert pq.training_nbytes < full.training_nbytes


PLAN = {
    "sweep": {"methods": ["full", "cce", "hash"], "caps": [500, 1000, 2000], "seeds": [0, 1]},
    "series": {"CCE, half": {"method": "cce"}, "pq": {"method": "pq", "caps": [500], "start_from": "full"}},
}


def test_runs_are_counted_for_each_series_cap_and_seed():
    assert num_planned(PLAN) == 2 * (1 + 3 + 3 + 3 + 1)
    assert num_planned({}) == 0
    assert num_planned({"sweep": {"methods": ["full"]}}) == 1
    assert num_planned({"sweep": 5, "series": "x"}) == 0


def test_a_run_is_known_by_its_name():
    assert series_by_name("cce-half-cap500-seed0", PLAN) == "CCE, half"
    assert series_by_name("cce-cap500-seed0", PLAN) == "cce"
    assert series_by_name("pq-cap500-seed1", PLAN) == "pq"
    assert series_by_name("robe-cap500-seed1", PLAN) == ""
    assert series_by_name("cce-cap500-seed0", {}) == ""


def test_what_is_not_toml_is_no_plan():
    assert read_plan("[sweep") == {}
    assert read_plan("a = 1") == {"a": 1}
