"""`cce prepare baked`: from the shell to scores, and one line for what is wrong."""

import json

import pytest

from cce.cli import main

pytestmark = pytest.mark.slow


def output(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_data_of_a_run_is_baked_scored_and_predicted(raw_run, tmp_path, capsys):
    summary = output(capsys, "prepare", "baked", raw_run / "run", tmp_path / "baked")
    assert (summary["kind"], summary["splits"]["test"]) == ("baked", 60)
    ours, theirs = (
        output(capsys, "evaluate", raw_run / "run", data) for data in (tmp_path / "baked", raw_run / "data")
    )
    assert ours == theirs
    assert output(capsys, "verify", tmp_path / "baked")["problems"] == []
    predicted = output(capsys, "predict", raw_run / "run", tmp_path / "baked", "--out", tmp_path / "p.csv")
    assert predicted["rows"] == 60
    assert main(["prepare", "baked", str(raw_run / "run"), str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out.startswith(f"baked: {tmp_path / 'again'}, ")


def test_what_is_wrong_is_one_line(raw_run, tmp_path, capsys):
    def rejected(*words):
        assert main(list(map(str, words))) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "must not exist already" in rejected("prepare", "baked", raw_run / "run", raw_run / "data")
    nowhere = rejected("prepare", "baked", tmp_path / "nowhere", tmp_path / "out")
    assert nowhere.startswith("cce prepare: ")
    assert "must be a run or a checkpoint" in nowhere
    moved = rejected("prepare", "baked", raw_run / "alone" / "one.ccez", tmp_path / "out", "--data", tmp_path)
    assert "must be a data set made by `cce prepare`" in moved
    assert "split goes with the folder of a data set" in rejected(
        "predict", raw_run / "run", raw_run / "raw.csv", "--split", "test", "--out", tmp_path / "p.csv"
    )
    assert not (tmp_path / "out").exists()
