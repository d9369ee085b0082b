"""What a report is pointed at: files, sweeps and runs, finished or not."""

import pytest

from cce.records import RunRecord, write_records
from cce_lab.report.groups import collect, group_records
from helpers.made_records import made_record


def begin(folder):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('data = "data/clicks"\n')
    return folder


def test_runs_that_are_not_finished_are_counted_and_left_out(tmp_path):
    write_records([made_record("hash", 500, 1)], tmp_path / "a" / "records.jsonl")
    begin(tmp_path / "a" / "runs" / "hash-500-1")  # the sweep has its record
    write_records([made_record("hash", 500, 2)], begin(tmp_path / "run") / "record.jsonl")
    assert collect([tmp_path]).notes == []
    begin(tmp_path / "b" / "runs" / "hash-500-1")  # of the same name, elsewhere
    found = collect([tmp_path])
    assert len(found.records) == 2
    assert found.notes == ["1 run not finished, and left out."]
    with pytest.raises(ValueError, match=r"there are no finished runs in .*/b; 1 run not finished\.$"):
        collect([tmp_path / "b"])


def test_a_run_s_own_record_gets_its_name_from_the_folder(tmp_path):
    write_records([made_record("cce", 500, name="")], tmp_path / "cce-one" / "record.jsonl")
    assert [record.name for record in collect([tmp_path]).records] == ["cce-one"]


def test_a_recipe_tells_what_is_expected_of_its_own_runs(tmp_path):
    write_records([made_record("cce", 500)], tmp_path / "one" / "records.jsonl")
    (tmp_path / "one" / "recipe.toml").write_text("[expected.compression]\ncce = 10\n")
    other = made_record("cce", 500, bce=0.1)
    other.config["data"] = "data/other"
    write_records([other], tmp_path / "two" / "records.jsonl")
    assert collect([tmp_path]).expected == {("clicks", "dlrm", 10): {"compression": {"cce": 10}}}


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


def test_a_recipe_that_is_no_toml_is_a_note(tmp_path):
    write_records([made_record("cce", 500)], tmp_path / "records.jsonl")
    (tmp_path / "recipe.toml").write_text("[sweep")
    assert collect([tmp_path]).notes == [f"{tmp_path}/recipe.toml cannot be read as TOML."]


@pytest.mark.parametrize("line", ["{", "[1]", '{"method": "cce"}', '"word"'])
def test_a_line_that_is_no_record_is_rejected_by_its_number(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_text(made_record("cce", 500).to_json() + f"\n{line}\n")
    with pytest.raises(ValueError, match=r"line 2 of .*records\.jsonl must be the record of a run: "):
        collect([tmp_path])


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
