"""`cce tune` as it is typed, and `cce sweep` with what it chose."""

import json

import pytest
import torch

from cce.cli import main
from cce.records import read_records
from helpers.runs import tiny_data

pytestmark = pytest.mark.slow

RECIPE = """
[train]
embedding_dim = 8
epochs = 2
batch_size = 64
optimizer = "adam"
model_options = { bottom = [8], top = [8] }
early_stopping = false
lr = 1e-7
threads = 1

[sweep]
methods = ["full"]
caps = [320]

[series.pq]
method = "pq"
start_from = "full"
epochs = 0
"""
TUNE = "[tune]\nlr = [1e-7, 0.02]\nstart_scale = ['uniform', 'dlrm']\nepochs = [1]\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    before = torch.get_num_threads()
    yield tiny_data(tmp_path_factory.mktemp("data") / "tiny")
    torch.set_num_threads(before)


@pytest.fixture
def words(tmp_path, monkeypatch, data):
    """A folder with recipes, and the words that name data and results."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.toml").write_text(RECIPE)
    (tmp_path / "tuned.toml").write_text(RECIPE + TUNE)
    return ["--data", str(data), "--out", "out"]


def test_a_sweep_with_tune_tunes_first_and_says_so_and_takes_the_choice_as_it_is_next_time(words, tmp_path, capsys):
    assert main(["sweep", "tuned.toml", *words]) == 0
    out, err = capsys.readouterr()
    assert "cce sweep: tunes first, as the recipe has [tune]\n" in err
    assert "cce sweep: runs with the options of out/tuned.json, chosen on validation rows\n" in err
    assert out.splitlines()[-1] == "records: out/records.jsonl"
    records = {record.series: record.config for record in read_records(tmp_path / "out" / "records.jsonl")}
    assert (records["full"]["lr"], records["pq"]["lr"]) == (0.02, 1e-7)  # what starts from another is not tuned
    assert main(["tune", "tuned.toml", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["series", "cap", "lr"]
    assert lines[2].split()[:2] == ["full", "0.02"]
    assert lines[3:] == ["not tuned, as they start from another series: pq", "choices: out/tuned.json"]
    assert main(["sweep", "tuned.toml", *words]) == 0
    assert "tunes first" not in capsys.readouterr().err


def test_a_choice_for_another_recipe_or_other_data_is_refused_in_one_line(words, data, tmp_path, capsys):
    assert main(["tune", "tuned.toml", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [choice["options"]["lr"] for choice in found["choices"]] == [0.02]
    (tmp_path / "tuned.toml").write_text(RECIPE.replace("batch_size = 64", "batch_size = 32") + TUNE)
    assert main(["sweep", "tuned.toml", *words]) == 2
    what = "got a choice for 'full' made with another [train], [series] or [tune]: run `cce tune` again."
    assert capsys.readouterr() == ("", f"cce sweep: out must be of this recipe, {what}\n")
    (tmp_path / "tuned.toml").write_text(RECIPE + TUNE)
    other = tiny_data(tmp_path / "other", seed=1)
    assert main(["sweep", "tuned.toml", "--data", str(other), "--out", "out"]) == 2
    what = "got choices made on another: run `cce tune` again."
    assert capsys.readouterr() == ("", f"cce sweep: out must be of this data set, {what}\n")
    assert not (tmp_path / "out" / "runs").exists()


def test_a_dry_run_counts_all_rounds_and_writes_nothing(words, tmp_path, capsys):
    (tmp_path / "tuned.toml").write_text(RECIPE + TUNE.replace("[1]", "[1, 2]"))
    assert main(["tune", "tuned.toml", *words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:4]] == [["full,", "1", "epochs"], ["full,", "2", "epochs"]]
    assert lines[4] == "6 of 6 runs are left."  # 2 rates, 2 starts; then half
    assert main(["sweep", "tuned.toml", *words, "--dry-run"]) == 0
    assert "without tuning, which comes first: see `cce tune RECIPE --dry-run`" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.toml", "tuned.toml"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ["tune", "nowhere.toml"],
            "recipe must name a file that is there, or one of ours, got 'nowhere.toml': "
            "`cce recipes` shows those that come with the package.",
        ),
        (["tune", "tuned.toml", "--only", "cce"], "only must name series of the recipe (full, pq), got 'cce'."),
        (["tune", "tuned.toml", "--jobs", "0"], "jobs must lie in [1, 2**16), got 0."),
        (
            ["tune", "tuned.toml", "--dry-run", "--engine", "spark"],
            "engine must be local, ray or ray://host:port, got 'spark'.",
        ),
        (["tune", "plain.toml"], "recipe must have [tune], which says what to try, got none."),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words, tmp_path, capsys, line, message):
    assert main([*line, *words]) == 2
    assert capsys.readouterr() == ("", f"cce {line[0]}: {message}\n")
    assert not (tmp_path / "out").exists()
