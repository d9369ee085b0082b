"""`cce evaluate` as it is typed."""

import json
import re

import pytest
import torch

from cce.cli import main
from cce.training import Trainer
from helpers.raw_runs import held_out_rows, write_rows
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
    assert (told["scores"], told["rows"], told["split"]) == (record.scores, 100, "test")
    best = min(record.curve, key=lambda scores: scores["bce"])
    assert main(["evaluate", told["checkpoint"], str(folder / "data"), "--split", "validation"]) == 0
    assert capsys.readouterr().out.startswith(f"validation, 100 rows: BCE {best['bce']:.5f}, AUC ")


def test_all_metrics_that_are_asked_for_are_printed(run, capsys):
    folder, record = run
    words = ["evaluate", str(folder / "run"), str(folder / "data"), "--metrics", "auc", "ece"]
    assert main(words) == 0
    line = capsys.readouterr().out.splitlines()[0]
    auc = f"{record.scores['auc']:.5f}"
    assert re.fullmatch(rf"test, 100 rows: AUC {auc}, ECE 0\.\d{{5}}", line)
    assert main([*words, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["scores"]) == ["auc", "ece"]


def test_a_metric_that_is_not_known_is_one_line_and_exits_2(run, capsys):
    folder, _ = run
    assert main(["evaluate", str(folder / "run"), str(folder / "data"), "--metrics", "acu"]) == 2
    assert capsys.readouterr().err == "cce evaluate: metric 'acu' is not known: did you mean 'auc'?\n"


def test_raw_rows_are_scored(raw_run, alone, rejected, capsys):
    write_rows(alone / "labelled.tsv", held_out_rows())
    assert main(["evaluate", "one.ccez", "labelled.tsv", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["split"], told["rows"]) == ("labelled.tsv", 60)
    assert main(["evaluate", str(raw_run / "run"), str(raw_run / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == told["scores"]
    message = "cce evaluate: new.csv: it must have a column 'click'; it has user, item, tags, age.\n"
    assert rejected(("evaluate", "one.ccez", "new.csv")) == message
    message = "split goes with the folder of a data set, got 'test' with raw rows."
    assert message in rejected(("evaluate", "one.ccez", "labelled.tsv", "--split", "test"))
