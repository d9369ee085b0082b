"""`cce inspect` as it is typed."""

import json

import pytest
import torch

from cce.cli import main
from cce.training import Trainer
from helpers.runs import tiny_config, tiny_data


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("inspected"), torch.get_num_threads()
    Trainer(tiny_config(tiny_data(folder / "data")), folder / "run").run()
    yield folder / "run"
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_run_is_told_in_words_and_in_json(run, capsys):
    assert main(["inspect", str(run)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"checkpoint: {run / 'checkpoints' / 'step-0000000026'}"
    assert "all tables" in out
    assert "peak memory above that before tables were made: train " in out
    assert main(["inspect", str(run / "checkpoints" / "step-0000000026"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 26
    assert told["peak_nbytes"].keys() == {"train"}
    assert told["tables"]["all_tables"]["num_params"] == 888


def test_a_pack_is_rejected(tmp_path, capsys):
    (tmp_path / "one.ccez").touch()
    assert main(["inspect", str(tmp_path / "one.ccez")]) == 2
    assert "RUN must be a folder, got the file " in capsys.readouterr().err
