"""`cce predict` as it is typed."""

import json
import os

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


BAD = [
    (("predict", "one.ccez", "new.csv", "--out", "p.xls"), "p.xls must end in .csv, .tsv, .txt, .parquet"),
    (("predict", "one.ccez", "new.csv", "--out", "p.csv.gz"), "out must be a plain file, got 'p.csv.gz'."),
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


def test_a_folder_is_no_file_of_predictions(alone, capsys):
    (alone / "folder.csv").mkdir()
    assert main(["predict", "one.ccez", "new.csv", "--out", "folder.csv"]) == 2
    assert capsys.readouterr().err == "cce predict: out must be a file, got the folder 'folder.csv'.\n"


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
    assert capsys.readouterr().err == "cce predict: --out must be a file, got ''.\n"
    assert not [name for name in os.listdir() if "q." in name]
