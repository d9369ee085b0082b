"""`cce pack` as it is typed."""

import json

import pytest

from cce.cli import main
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


def test_a_pack_says_what_is_in_it(raw_run, alone, capsys):
    assert main(["pack", str(raw_run / "run"), "-o", "two.ccez"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("two.ccez: step ")
    assert out.count("\n") == 1
    assert main(["pack", str(raw_run / "run"), "-o", "two.ccez", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == (alone / "two.ccez").stat().st_size
    assert set(told["files"]) > {"model.safetensors", "record.jsonl", "inputs/inputs.json", "inputs/000.safetensors"}


def test_a_pack_without_vocabularies_says_so(tmp_path, capsys):
    from cce.training import Trainer

    Trainer(tiny_config(tiny_data(tmp_path / "data"), max_steps=2, epochs=1), tmp_path / "run").run()
    assert main(["pack", str(tmp_path / "run"), "-o", str(tmp_path / "one.ccez")]) == 0
    assert "without vocabularies: its data set is synthetic" in capsys.readouterr().out


def test_bad_input_is_one_line_and_leaves_nothing(rejected):
    message = "path must be the folder of a run, got the file 'one.ccez'."
    assert message in rejected(("pack", "one.ccez", "-o", "p.ccez"))
    message = "none must be a run or a checkpoint, got no whole checkpoint there."
    assert message in rejected(("pack", "none", "-o", "p.ccez"))
