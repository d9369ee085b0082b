"""`cce embed` as it is typed."""

import json

import numpy as np
import pytest

import cce
from cce.cli import main
from helpers.files import small_files
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


def test_vectors_and_values_are_written(raw_run, alone, capsys):
    assert main(["embed", "one.ccez", "--feature", "item", "--out", "v.npy"]) == 0
    assert capsys.readouterr().out == "51 × 8, float32: v.npy\nraw values: v.values.parquet\n"
    ids = cce.load_run(raw_run / "run").vocabularies["item"].find(["1003", "1049"])
    table = cce.load_run(raw_run / "run").model.tables.tables["item"]
    assert np.array_equal(np.load("v.npy", mmap_mode="r")[ids], table.to_dense().detach().numpy()[ids])
    assert main(["embed", "one.ccez", "--feature", "item", "--out", "w.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [51, 8]
    assert (alone / "w.values.parquet").exists()


def test_a_synthetic_feature_has_vectors_and_no_values(tmp_path, capsys):
    cce.training.Trainer(tiny_config(tiny_data(tmp_path / "data"), max_steps=2), tmp_path / "run").run()
    assert main(["embed", str(tmp_path / "run"), "--feature", "c0", "--out", str(tmp_path / "w.npy")]) == 0
    assert capsys.readouterr().out.endswith("w.npy\n")
    assert not (tmp_path / "w.values.parquet").exists()


def test_a_full_disk_leaves_neither_vectors_nor_values(alone, rejected):
    with small_files(1500):  # enough for the values
        line = rejected(("embed", "one.ccez", "--feature", "item", "--out", "new/v.npy"))
    assert line == "cce embed: [Errno 27] File too large: 'new/v.npy'\n"


def test_bad_input_is_one_line_and_leaves_nothing(alone, rejected):
    words = ("embed", "one.ccez", "--feature")
    assert "feature must be one of user, item, tags; got 'itme'." in rejected((*words, "itme", "--out", "p.npy"))
    assert "--out must end in .npy, got 'p.txt'." in rejected((*words, "item", "--out", "p.txt"))
    (alone / "p.npy").mkdir()
    (alone / "q.values.parquet").mkdir()
    for out, folder in (("p.npy", "p.npy"), ("q.npy", "q.values.parquet")):
        line = f"cce embed: --out must be a file, got the folder '{folder}'.\n"
        assert rejected((*words, "item", "--out", out)) == line
        (alone / folder).rmdir()
