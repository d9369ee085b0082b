"""`cce sweep` as it is typed: recipes, Ctrl-C, failures, and what it rejects."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

from cce.cli import main
from cce.records import read_records
from helpers.runs import tiny_data

pytestmark = pytest.mark.slow

RECIPE = """
about = "a test"

[data]
name = "tiny"
prepare = "synthetic --rows 1000 --vocabulary-sizes 120 60 30 --clusters 4 --num-dense 2"

[train]
embedding_dim = 8
epochs = 2
batch_size = 64
model_options = { bottom = [8], top = [8] }
validations_per_epoch = 3
early_stopping = false

[sweep]
methods = ["full", "cce"]
caps = [320]

[series.pq]
method = "pq"
start_from = "full"
epochs = 0
"""
ENDLESS = RECIPE.replace("epochs = 2", "epochs = 100000")
ENDLESS = ENDLESS.replace("caps = [320]", "caps = [320, 640, 800, 960]")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    before = torch.get_num_threads()
    yield tiny_data(tmp_path_factory.mktemp("data") / "tiny")
    torch.set_num_threads(before)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_bytes(RECIPE.replace("\n", "\r\n").encode())
    return tmp_path


def test_it_prepares_runs_and_tells_where_the_records_are(here, capsys):
    assert main(["sweep", "recipe.toml"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "records: runs/sweeps/recipe/records.jsonl"
    assert "Traceback" not in err
    told = re.findall(r"^(\d) of 3: ([\w-]+): bce 0\.\d{4}, .*; [\d,]+ params, .*B, \d+ s$", out, re.MULTILINE)
    assert [count for count, _ in told] == ["1", "2", "3"]  # captured, so not a terminal
    assert {name for _, name in told} == {"full-seed0", "cce-cap320-seed0", "pq-cap320-seed0"}
    assert re.search(
        r"^series +budget +BCE +against full +served bytes +params +fewer params +seconds +seeds$", out, re.M
    )
    assert re.search(r"^cce +cap 320 .* 1$", out, re.MULTILINE)
    records = read_records(here / "runs" / "sweeps" / "recipe" / "records.jsonl")
    assert [record.series for record in records] == ["cce", "full", "pq"]
    assert (here / "runs" / "data" / "tiny" / "manifest.json").exists()
    assert (here / "runs" / "sweeps" / "recipe" / "recipe.toml").read_bytes() == (here / "recipe.toml").read_bytes()


def test_json_is_all_that_stdout_holds_and_some_series_are_chosen(here, data, capsys):
    words = ["--data", str(data), "--out", "out", "--only", "cce", "--json"]
    assert main(["sweep", "recipe.toml", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (record,) = json.loads(out)
    assert (record["name"], record["seed"], record["config"]["data"]) == ("cce-cap320-seed0", 0, str(data))


def test_more_jobs_than_cores_are_warned_of(here, data, capsys, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    words = ["--data", str(data), "--out", "out", "--only", "cce", "--jobs", "2"]
    assert main(["sweep", "recipe.toml", *words]) == 0
    assert "cce sweep: 2 jobs share 1 cores: they slow each other down\n" in capsys.readouterr().err


def test_a_failing_run_is_named_and_the_others_are_there(here, data, capsys):
    series = '[series.wrong]\nmethod = "cce"\nmodel_options = { colour = 3 }\n'
    (here / "recipe.toml").write_text(RECIPE + series)
    assert main(["sweep", "recipe.toml", "--data", str(data), "--out", "out", "--json"]) == 2
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 3
    assert err.startswith("cce sweep: 1 of 4 runs failed, see their error.txt: wrong-cap320-seed0: TypeError: model")
    assert len(err.splitlines()) == 1
    assert (here / "out" / "runs" / "wrong-cap320-seed0" / "error.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["raw.toml", "--data", ""], "raw data 'clicks.csv' must be there or in the folder CCE_DATA, got neither."),
        (["wrong.toml", "--data", ""], "unrecognized arguments: --lines 1000; see `cce --help`."),
        (["none.toml", "--data", ""], "recipe must say how its data is prepared, or --data must name a data set."),
    ],
)
def test_bad_input_is_one_line_and_exit_2(here, data, capsys, monkeypatch, words, message):
    monkeypatch.delenv("CCE_DATA", raising=False)
    (here / "raw.toml").write_text(RECIPE.replace("synthetic --rows", "table clicks.csv --rows"))
    (here / "wrong.toml").write_text(RECIPE.replace("synthetic --rows", "synthetic --lines"))
    (here / "none.toml").write_text("\n".join(line for line in RECIPE.splitlines() if "prepare" not in line))
    words = words[:-2] if words[-1] == "" else [*words, "--data", str(data)]
    assert main(["sweep", *words, "--out", "out"]) == 2
    assert capsys.readouterr() == ("", f"cce sweep: {message}\n")
    assert not list(here.rglob("checkpoints"))


def test_raw_data_is_looked_for_in_the_folder_of_data(here, monkeypatch, capsys):
    (here / "raw").mkdir()
    rows = "".join(f"{row % 2},u{row % 5},i{row % 7}\n" for row in range(400))
    (here / "raw" / "clicks.csv").write_text("click,user,item\n" + rows)
    monkeypatch.setenv("CCE_DATA", str(here / "raw"))
    recipe = RECIPE.replace("synthetic --rows 1000 --vocabulary-sizes 120 60 30 --clusters 4 --num-dense 2", "RAW")
    (here / "mine.toml").write_text(recipe.replace("RAW", "table clicks.csv --label click --categorical user item"))
    assert main(["sweep", "mine.toml", "--only", "full"]) == 0
    assert [record.series for record in read_records(here / "runs" / "sweeps" / "mine" / "records.jsonl")] == ["full"]


def test_a_dry_run_lists_the_runs_that_are_left_and_runs_none(here, data, capsys):
    words = ["--data", str(data), "--out", "out", "--dry-run"]
    before = sorted(here.rglob("*"))
    assert main(["sweep", "recipe.toml", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["full", "1,704", "1"],
        ["cce", "320", "888", "1"],
        ["pq", "320", "888", "1"],
    ]
    assert lines[5:] == ["3 of 3 runs are left."]
    assert sorted(here.rglob("*")) == before
    assert main(["sweep", "recipe.toml", "--data", str(data), "--out", "out", "--only", "cce"]) == 0
    capsys.readouterr()
    assert main(["sweep", "recipe.toml", *words, "--only", "full", "cce", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"series": "full", "cap": None, "num_params": 1704, "num_runs": 1}]


def test_data_that_cannot_be_prepared_is_one_line(here, capsys):
    (here / "clicks.csv").write_text("click,user\n1,u\n5,u\n")
    recipe = RECIPE.replace("synthetic --rows 1000 --vocabulary-sizes 120 60 30 --clusters 4 --num-dense 2", "RAW")
    (here / "recipe.toml").write_text(recipe.replace("RAW", "table clicks.csv --label click --categorical user"))
    for words in ([], ["--dry-run"]):
        assert main(["sweep", "recipe.toml", *words]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert err.startswith("cce sweep: malformed rows must be at most max_bad_rows=0, got 1 or more. ")
        assert "clicks.csv, line 3: click must be 0 or 1 without a threshold, got 5" in err
    assert sorted(path.name for path in here.iterdir()) == ["clicks.csv", "recipe.toml"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_saves_every_run_under_way_and_says_how_to_go_on(here, data, jobs):
    """A real process, and a real Ctrl-C, which a terminal sends to the whole group."""
    (here / "recipe.toml").write_text(ENDLESS)
    command = [sys.executable, "-m", "cce", "sweep", "recipe.toml", "--data", str(data), "--out", "out"]
    process = subprocess.Popen(
        [*command, "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started = time.monotonic()
    while len(steps(here)) < jobs and time.monotonic() - started < 200:
        time.sleep(0.05)
    under_way = steps(here)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (130, "")
    message = "0 of 9 runs are finished, the others are saved as far as they are; resume with the same command"
    assert err.splitlines()[-1] == f"cce sweep: {message}"
    assert "Traceback" not in err
    assert len(under_way) == jobs
    for name in under_way:
        log = [json.loads(line) for line in (here / "out" / "runs" / name / "metrics.jsonl").read_text().splitlines()]
        newest = max(int(path.name[5:]) for path in (here / "out" / "runs" / name).glob("checkpoints/step-*"))
        assert newest >= log[-1]["step"] > 0
    assert list(here.glob("out/runs/*/error.txt")) == []


def steps(here):
    """Runs that have written a validation to their logs."""
    logs = here.glob("out/runs/*/metrics.jsonl")
    return [path.parent.name for path in logs if '"kind": "validation"' in path.read_text()]
