"""`cce predict` as it is typed."""

import io
import json
import os
import sys

import numpy as np
import pytest

import cce
from cce.cli import main
from helpers.files import small_files
from helpers.raw_runs import held_out_rows, write_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(raw_run):
    return cce.load_run(raw_run / "run").predict(held_out_rows())


def test_predictions_go_to_files_of_each_kind(alone, expected, capsys):
    assert main(["predict", "one.ccez", "new.csv", "--out", "out/p.parquet"]) == 0
    assert capsys.readouterr().out == "60 rows: out/p.parquet\n"
    from pyarrow import parquet

    assert np.array_equal(parquet.read_table("out/p.parquet")["probability"].to_numpy(), expected)
    assert main(["predict", "one.ccez", "new.csv", "--out", "p.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"checkpoint": "one.ccez", "rows": 60, "out": "p.csv"}
    assert np.array_equal(np.loadtxt("p.csv", dtype=np.float32, skiprows=1), expected)


def test_standard_input_and_output_are_streams(alone, expected, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((alone / "new.csv").read_bytes())))
    assert main(["predict", "one.ccez", "-", "--format", "csv", "--out", "-"]) == 0
    told = capsys.readouterr()
    assert told.err == "60 rows: -\n"
    assert told.out.startswith("probability\n")
    assert np.array_equal(np.array(told.out.split()[1:], np.float32), expected)


BAD = [
    (("predict", "one.ccez", "new.csv", "--out", "p.xls"), "p.xls must end in .csv, .tsv, .txt, .parquet"),
    (("predict", "one.ccez", "new.csv", "--out", "p.csv.gz"), "out must be a plain file, got 'p.csv.gz'."),
    (("predict", "one.ccez", "-", "--out", "p.csv"), "standard input and output need a format of csv, tsv,"),
    (
        ("predict", "one.ccez", "none.csv", "--out", "p.csv"),
        "data must be the folder of a data set or a file of raw rows",
    ),
    (("predict", "one.ccez", "new.csv", "--out", "./new.csv"), "--out must be another file than that of the rows, got"),
    (("predict", "one.ccez", "new.csv", "--out", "new.csv/p.csv"), "out must lie in a folder, got 'new.csv/p.csv', ab"),
    (("predict", "new.csv", "new.csv", "--out", "p.csv"), "new.csv must be a whole pack made by `cce pack`, got"),
    (("predict", "none", "new.csv", "--out", "p.csv"), "none must be a run or a checkpoint, got no whole checkpoint"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing(rejected, words, message):
    assert message in rejected(words)


def test_folders_and_closed_streams_are_one_line(alone, capsys, monkeypatch):
    (alone / "folder.csv").mkdir()
    assert main(["predict", "one.ccez", "new.csv", "--out", "folder.csv"]) == 2
    assert capsys.readouterr().err == "cce predict: out must be a file, got the folder 'folder.csv'.\n"
    (alone / "folder.csv").rmdir()
    monkeypatch.setattr(sys, "stdin", None)
    for words in (["predict", "one.ccez", "-", "--format", "csv", "--out", "q.csv"], ["evaluate", "one.ccez", "-"]):
        assert main(words) == 2
        line = f"cce {words[0]}: standard input must be open to read rows from it, and it is closed.\n"
        assert capsys.readouterr().err == line
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["predict", "one.ccez", "new.csv", "--out", "-"]) == 2
    assert capsys.readouterr().err == "cce predict: standard output must be open to write to it, and it is closed.\n"


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
    assert [error.rpartition("File too large: ")[2] for error in errors] == ["'q.csv'", "'q.parquet'"]
    assert main(["predict", "one.ccez", "new.csv", "--out", ""]) == 2
    assert capsys.readouterr().err == "cce predict: --out must be a file, or - for standard output, got ''.\n"
    assert not [name for name in os.listdir() if "q." in name]
