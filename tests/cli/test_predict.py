"""`cce predict`, `cce embed` and `cce pack` as they are typed."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import cce
from cce.cli import main
from helpers.files import small_files
from helpers.raw_runs import held_out_rows, train_on_raw, write_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, a pack of it in a folder of its own, and new rows without labels."""
    folder = tmp_path_factory.mktemp("predicting")
    train_on_raw(folder)
    (folder / "alone").mkdir()
    assert main(["pack", str(folder / "run"), "-o", str(folder / "alone" / "one.ccez"), "--json"]) == 0
    write_rows(folder / "alone" / "new.csv", held_out_rows(), ("user", "item", "tags", "age"))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    return cce.load_run(folder / "run").predict(held_out_rows())


@pytest.fixture
def alone(folder, monkeypatch):
    monkeypatch.chdir(folder / "alone")
    return folder / "alone"


def test_predictions_go_to_files_of_each_kind(alone, expected, capsys):
    assert main(["predict", "one.ccez", "new.csv", "--out", "out/p.parquet"]) == 0
    assert capsys.readouterr().out == "60 rows: out/p.parquet\n"
    from pyarrow import parquet

    assert np.array_equal(parquet.read_table("out/p.parquet")["probability"].to_numpy(), expected)
    assert main(["predict", "one.ccez", "new.csv", "--out", "p.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"checkpoint": "one.ccez", "rows": 60, "out": "p.csv"}
    assert np.array_equal(np.loadtxt("p.csv", dtype=np.float32, skiprows=1), expected)
    assert main(["predict", "one.ccez", "new.csv", "--out", "p.jsonl"]) == 0
    lines = [json.loads(line)["probability"] for line in (alone / "p.jsonl").read_text().splitlines()]
    assert np.array_equal(np.array(lines, np.float32), expected)


def test_standard_input_and_output_are_streams(alone, expected):
    command = [sys.executable, "-m", "cce", "predict", "one.ccez", "-", "--format", "csv", "--out", "-"]
    text = (alone / "new.csv").read_text()
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "60 rows: -\n")
    assert np.array_equal(np.array(done.stdout.split()[1:], np.float32), expected)


def test_raw_rows_are_scored(folder, alone, capsys):
    write_rows(alone / "labelled.tsv", held_out_rows())
    assert main(["evaluate", "one.ccez", "labelled.tsv", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["split"], told["rows"]) == ("labelled.tsv", 60)
    assert told["scores"] == cce.load_run(folder / "run").scores
    assert main(["evaluate", "one.ccez", "new.csv"]) == 2
    assert (
        capsys.readouterr().err
        == "cce evaluate: new.csv: it must have a column 'click'; it has age, item, tags, user.\n"
    )


def test_vectors_and_values_are_written(folder, alone, capsys):
    assert main(["embed", "one.ccez", "--feature", "item", "--out", "v.npy"]) == 0
    assert capsys.readouterr().out == "51 × 8, float32: v.npy\nraw values: v.values.parquet\n"
    assert np.load("v.npy", mmap_mode="r").shape == (51, 8)
    assert main(["embed", "one.ccez", "--feature", "item", "--out", "w.npy", "--no-values", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [51, 8]
    assert not (alone / "w.values.parquet").exists()


def test_a_pack_says_what_is_in_it(folder, alone, capsys):
    assert main(["pack", str(folder / "run"), "-o", "two.ccez"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("two.ccez: step ")
    assert out.count("\n") == 1


BAD = [
    (("predict", "one.ccez", "new.csv", "--out", "p.xls"), "p.xls must end in one of csv, tsv, txt, parquet, jsonl"),
    (("predict", "one.ccez", "-", "--out", "p.csv"), "standard input and output need a format of csv, tsv,"),
    (("predict", "one.ccez", "none.csv", "--out", "p.csv"), "none.csv must be a file, and there is none."),
    (("predict", "one.ccez", "new.csv", "--out", "p.csv", "--batch-size", "0"), "batch_size must lie in [1, 2**31)"),
    (("predict", "new.csv", "new.csv", "--out", "p.csv"), "new.csv must be a whole pack made by `cce pack`, got"),
    (("predict", "none", "new.csv", "--out", "p.csv"), "none must be a run or a checkpoint, got no whole checkpoint"),
    (("embed", "one.ccez", "--feature", "itme", "--out", "p.npy"), "got 'itme': did you mean 'item'?"),
    (("embed", "one.ccez", "--feature", "item", "--out", "p.txt"), "--out must end in .npy, got 'p.txt'."),
    (("pack", "one.ccez", "-o", "p.ccez"), "path must be the folder of a run, got the file 'one.ccez'."),
    (("pack", "none", "-o", "p.ccez"), "none must be a run or a checkpoint, got no whole checkpoint there."),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing(alone, words, message, capsys):
    before = sorted(os.listdir())
    assert main(list(words)) == 2
    lines = capsys.readouterr().err
    assert message in lines
    assert lines.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_a_bad_row_or_a_full_disk_leaves_no_predictions(alone, capsys):
    rows = [*held_out_rows(), {**held_out_rows()[0], "age": "old"}]
    write_rows(alone / "bad.csv", rows)
    assert main(["predict", "one.ccez", "bad.csv", "--out", "q.parquet"]) == 2
    assert capsys.readouterr().err == "cce predict: bad.csv, row 61: age must be a number, got 'old'.\n"
    with small_files(100):
        assert main(["predict", "one.ccez", "new.csv", "--out", "q.csv"]) == 2
        assert main(["predict", "one.ccez", "new.csv", "--out", "q.parquet"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all("File too large" in error for error in errors)
    assert not [name for name in os.listdir() if "q." in name]
