"""`cce embed` as it is typed."""

import json

import numpy as np
import pytest

import cce
from cce.cli import main
from helpers.files import small_files

pytestmark = pytest.mark.slow


def test_vectors_and_values_are_written(raw_run, alone, capsys):
    assert main(["embed", "one.ccez", "--feature", "item", "--out", "v.npy"]) == 0
    assert capsys.readouterr().out == "51 × 8, float32: v.npy\nraw values: v.values.parquet\n"
    ids = cce.load_run(raw_run / "run").vocabularies["item"].find(["1003", "1049"])
    table = cce.load_run(raw_run / "run").model.tables.tables["item"]
    assert np.array_equal(np.load("v.npy", mmap_mode="r")[ids], table.to_dense().detach().numpy()[ids])
    assert main(["embed", "one.ccez", "--feature", "item", "--out", "w.npy", "--no-values", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [51, 8]
    assert not (alone / "w.values.parquet").exists()


def test_a_full_disk_leaves_neither_vectors_nor_values(alone, rejected):
    with small_files(1500):  # enough for the values
        line = rejected(("embed", "one.ccez", "--feature", "item", "--out", "new/v.npy"))
    assert line == "cce embed: [Errno 27] File too large: 'new/v.npy'\n"


def test_bad_input_is_one_line_and_leaves_nothing(alone, rejected):
    words = ("embed", "one.ccez", "--feature")
    assert "got 'itme': did you mean 'item'?" in rejected((*words, "itme", "--out", "p.npy"))
    assert "--out must end in .npy, got 'p.txt'." in rejected((*words, "item", "--out", "p.txt"))
    (alone / "p.npy").mkdir()
    (alone / "q.values.parquet").mkdir()
    for out, folder in (("p.npy", "p.npy"), ("q.npy", "q.values.parquet")):
        line = f"cce embed: --out must be a file, got the folder '{folder}'.\n"
        assert rejected((*words, "item", "--out", out)) == line
        (alone / folder).rmdir()
