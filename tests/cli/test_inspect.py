"""`cce inspect` as it is typed."""

import json

import pytest
import torch

from cce.cli import main
from cce.report import can_draw
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
    assert main(["inspect", str(run / "checkpoints" / "step-0000000026"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 26
    assert told["tables"]["all_tables"]["num_params"] == 888
    assert set(told["health"]["tables.tables.c0"]) == {
        "entropies",
        "golden",
        "dead_rows",
        "num_rows",
        "moved",
        "verdict",
    }


@pytest.mark.slow
def test_what_is_no_run_is_one_line_and_exit_2(tmp_path, capsys):
    assert main(["inspect", str(tmp_path)]) == 2
    message = f"cce inspect: {tmp_path} must be a run or a checkpoint, got no whole checkpoint there.\n"
    assert capsys.readouterr() == ("", message)


@pytest.mark.slow
@pytest.mark.skipif(not can_draw(), reason="without vl-convert there is no page")
def test_a_page_is_written_into_the_run_or_beside_a_pack_or_where_it_is_asked_for(raw_run, alone, capsys):
    assert main(["inspect", str(raw_run / "run"), "--page"]) == 0
    assert capsys.readouterr().out == f"page: {raw_run / 'run' / 'page.html'}\n"
    assert "<h2>Nearest values</h2>" in (raw_run / "run" / "page.html").read_text()
    assert main(["inspect", "one.ccez", "--page", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == "one.html"
    assert told["left_out"][0] == "Scores: the training loss: a pack has no log."
    assert main(["inspect", "one.ccez", "--page", "here.html", "--data", "gone"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "left out: Calibration: the data set is not at 'gone': --data says where it is.",
        "page: here.html",
    ]
    for page in ("one.html", "here.html"):
        (alone / page).unlink()


@pytest.mark.slow
def test_bad_input_of_a_page_is_one_line_and_nothing_is_left_behind(raw_run, rejected):
    run = str(raw_run / "run")
    assert rejected(["inspect", run, "--data", "data"]) == "cce inspect: data goes with --page, got 'data' without.\n"
    assert "gone must be a run or a checkpoint" in rejected(["inspect", "gone", "--page"])
    assert "a pack goes with --page, got the file 'one.ccez' without." in rejected(["inspect", "one.ccez"])
    assert "new.csv must be a whole pack made by `cce pack`" in rejected(["inspect", "new.csv", "--page"])
    assert "page must be a file, got the folder '.'" in rejected(["inspect", run, "--page", "."])
