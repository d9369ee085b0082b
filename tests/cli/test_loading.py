"""What verbs that use a run share."""

import shutil

import pytest

import cce
from cce.cli import main

pytestmark = pytest.mark.slow


def test_checkpoints_that_are_passed_over_are_named(raw_run, tmp_path, capsys):
    shutil.copytree(raw_run / "run", tmp_path / "run")
    best = cce.load_run(tmp_path / "run").path
    (best / "model.safetensors").write_bytes(b"")
    assert main(["evaluate", str(tmp_path / "run"), str(raw_run / "data")]) == 0
    told = capsys.readouterr()
    damage = f"{best / 'model.safetensors'} is not what was written: the checkpoint was damaged."
    assert told.err == f"cce evaluate: {damage}\n"
    assert str(best) not in told.out
    with pytest.warns(UserWarning, match="is not what was written: the checkpoint was damaged"):
        cce.load_run(tmp_path / "run")


def test_the_data_set_may_be_elsewhere(raw_run, tmp_path, capsys):
    shutil.copytree(raw_run / "run", tmp_path / "run")
    (raw_run / "data").rename(raw_run / "moved")
    try:
        words = ["predict", str(tmp_path / "run"), str(raw_run / "alone" / "new.csv"), "--out", str(tmp_path / "p.csv")]
        assert main(words) == 2
        assert "got none there: give its folder as data (--data), or pack the run" in capsys.readouterr().err
        assert main([*words, "--data", str(raw_run / "moved")]) == 0
    finally:
        (raw_run / "moved").rename(raw_run / "data")
