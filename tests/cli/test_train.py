"""`cce train` as it is typed: options, files, resuming, and what it rejects."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from cce.cli import main
from cce.cli.train import best_validation
from cce.records import RunRecord, read_records
from cce.training.config import make_config, read_toml, to_toml
from helpers.raw_files import write_csv
from helpers.runs import tiny_config, tiny_data

SMALL = ("--cap", "320", "--embedding-dim", "8", "--batch-size", "64", "--set", "threads=1")
SMALL += ("--model-options", "bottom=[8]")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    before = torch.get_num_threads()
    yield tiny_data(tmp_path_factory.mktemp("data") / "tiny")
    torch.set_num_threads(before)


@pytest.mark.slow
def test_it_trains_and_tells_what_came_of_it(data, tmp_path, capsys):
    words = ["--preset", "paper", "--out", str(tmp_path / "run")]
    assert main(["train", str(data), *SMALL, *words]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "tables: 888 params, 4.2 kB"
    assert lines[1].startswith("best validation: BCE 0.")
    assert lines[2].startswith("test: BCE 0.")
    assert lines[-1] == f"run: {tmp_path / 'run'}"
    assert err.count("validation BCE") == 6
    config = make_config(read_toml(tmp_path / "run" / "config.toml"))
    assert config.model_options == {"bottom": [8]}
    assert (config.optimizer, config.lr, config.cluster_at) == ("sgd", 0.1, "auto")


@pytest.mark.slow
@pytest.mark.parametrize("curve", [[], [{"step": 6, "auc": math.nan}]])
def test_a_run_without_a_validation_or_of_one_class_names_none(curve):
    record = RunRecord("full", 0, 1, 4, {}, 0.1, config={"metrics": ["auc"]}, curve=curve)
    assert best_validation(record) is None


def test_prepare_and_train_tell_how_much_of_each_split_has_no_row_and_warn_of_much(tmp_path, capsys):
    rows = [(n % 2, n % 10 if n < 800 else n) for n in range(1000)]  # new users in the last fifth
    write_csv(tmp_path / "a.csv", ("y", "user"), rows)
    words = ["--label", "y", "--categorical", "user", "--split", "order"]
    assert main(["prepare", "table", str(tmp_path / "a.csv"), str(tmp_path / "data"), *words]) == 0
    said = [capsys.readouterr().out]
    words = ["--model", "mlp", "--model-options", "hidden=[8]", "--set", "threads=1"]
    assert main(["train", str(tmp_path / "data"), *words, "--out", str(tmp_path / "run")]) == 0
    said.append(capsys.readouterr().err)
    for text, what in zip(said, ("unseen in training", "without a trained row"), strict=True):
        assert f"occurrences {what}: train 0.0%, validation 100.0%, test 100.0%" in text
        for split in ("validation", "test"):
            assert f"warning: more than 20% of {split} is {what}, by feature: user 100%" in text


@pytest.mark.slow
def test_metrics_are_options_and_the_first_one_says_what_is_best(data, tmp_path, capsys):
    words = ["--metrics", "auc", "ece", "--out", str(tmp_path / "run")]
    assert main(["train", str(data), *SMALL, *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    curve = read_records(tmp_path / "run" / "record.jsonl")[0].curve
    best = max(curve, key=lambda scores: scores["auc"])
    scores = f"AUC {best['auc']:.5f}, ECE {best['ece']:.5f}"
    assert lines[1] == f"best validation: {scores}, after step {best['step']:,}"
    assert lines[2].startswith("test: AUC 0.")


@pytest.mark.slow
def test_json_is_all_that_stdout_holds_and_a_run_goes_on(data, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", str(data), *SMALL, "--out", out, "--max-steps", "6", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["train", "--resume", out, "--max-steps", "13", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    second = json.loads(printed.out)
    assert second["out"] == out
    assert [first["curve"][0]["step"], second["curve"][0]["step"]] == [6 + 1, 13 + 1]  # each when tables were finalized


@pytest.mark.slow
def test_a_file_has_the_same_names_and_the_command_line_goes_first(data, tmp_path, capsys):
    (tmp_path / "run.toml").write_text(to_toml(tiny_config(data, seed=3)))
    arguments = ["--config", str(tmp_path / "run.toml"), "--max-steps", "2", "--out", str(tmp_path / "run"), "--json"]
    assert main(["train", *arguments]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert (config["seed"], config["max_steps"], config["cap"]) == (3, 2, 320)


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_resume(data, tmp_path):
    """A real process, and a real Ctrl-C."""
    words = [str(data), *SMALL, "--epochs", "100000", "--set", "early_stopping=false", "--out", str(tmp_path / "run")]
    process = subprocess.Popen([sys.executable, "-m", "cce", "train", *words], stderr=subprocess.PIPE, text=True)
    log, started = tmp_path / "run" / "metrics.jsonl", time.monotonic()
    while not (log.exists() and '"kind": "validation"' in log.read_text()) and time.monotonic() - started < 120:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith(f"resume with `cce train --resume {tmp_path / 'run'}`")
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "meant"), [("dlrm", "dlrm"), ("1e-3", 0.001)])
def test_starts_and_decays_are_typed_as_words_and_numbers(data, tmp_path, typed, meant, capsys):
    out = tmp_path / "run"
    words = ["--set", f"start_scale={typed}", "--set", "weight_decay=0.1", "--optimizer", "adamw", "--method", "hash"]
    main(["train", str(data), *SMALL, *words, "--max-steps", "2", "--out", str(out), "--json"])
    config = json.loads(capsys.readouterr().out)["config"]
    assert config["start_scale"] == meant == read_toml(out / "config.toml")["start_scale"]
    assert config["weight_decay"] == 0.1
