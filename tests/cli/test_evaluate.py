"""`cce evaluate` as it is typed."""

import json

import pytest
import torch

from cce.cli import main
from cce.training import Trainer
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("evaluated"), torch.get_num_threads()
    record = Trainer(tiny_config(tiny_data(folder / "data")), folder / "run").run()
    yield folder, record
    torch.set_num_threads(before)


def test_a_run_is_scored_by_its_best_checkpoint(run, capsys):
    folder, record = run
    assert main(["evaluate", str(folder / "run"), str(folder / "data"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["bce"], told["auc"], told["rows"], told["split"]) == (record.bce, record.auc, 100, "test")
    best = min(record.curve, key=lambda scores: scores["bce"])
    assert main(["evaluate", told["checkpoint"], str(folder / "data"), "--split", "validation", "--streaming"]) == 0
    assert capsys.readouterr().out.startswith(f"validation, 100 rows: BCE {best['bce']:.5f}, AUC ")


def test_a_wrong_split_is_one_line_and_exit_2(run, capsys):
    folder, _ = run
    assert main(["evaluate", str(folder / "run"), str(folder / "data"), "--split", "tests"]) == 2
    assert capsys.readouterr().err == "cce evaluate: split must be one of train, validation, test; got 'tests'.\n"
