"""`cce prepare`: every kind from the shell, one clear line for what is wrong, JSON, and help with an example."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.cli import main, prepare
from cce.data import PreparedData
from cce.text import install_hint
from helpers.raw_files import write_csv

ROWS = [(row % 2, f"u{row % 7}", "a|b" if row % 3 else "", row) for row in range(100)]


def prepared(capsys, *arguments):
    """The JSON that a preparation prints."""
    assert main(["prepare", *map(str, arguments), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def rejected(capsys, *arguments):
    """The one line that a rejected preparation prints."""
    assert main(["prepare", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("cce prepare: ")
    return err


@pytest.mark.slow
def test_criteo_kaggle(tmp_path, capsys):
    write_criteo_text(tmp_path / "train.txt", 700)
    summary = prepared(capsys, "criteo-kaggle", tmp_path / "train.txt", tmp_path / "out", "--hash-ids", 5)
    assert summary["splits"] == {"train": 600, "validation": 50, "test": 50}
    assert max(summary["features"].values()) == 32
    assert summary["out"] == str(tmp_path / "out")
    data = PreparedData.open(tmp_path / "out")
    assert data.manifest["dense"] == summary["dense"]


@pytest.mark.slow
def test_criteo_terabyte(tmp_path, capsys):
    for day in range(2):
        write_criteo_text(tmp_path / "days" / f"day_{day}", 200, seed=day)
    options = ("--sample", "negatives", "--keep", "0.5", "--modulus", "20", "--vocabulary-from", "all")
    summary = prepared(capsys, "criteo-terabyte", tmp_path / "days", tmp_path / "out", *options)
    assert summary["rows"]["read"] == 400
    assert 100 < summary["rows"]["left_out"] < 200
    assert max(summary["features"].values()) == 22  # unseen, missing, and 20 values


def test_movielens(tmp_path, capsys):
    (tmp_path / "u.data").write_text("".join(f"{n % 5}\t{n}\t{1 + n % 5}\t{n}\n" for n in range(50)))
    summary = prepared(capsys, "movielens", tmp_path / "u.data", tmp_path / "out", "--split", "temporal")
    assert summary["rows"]["left_out"] == 10
    assert summary["splits"] == {"train": 32, "validation": 4, "test": 4}


def test_table(tmp_path, capsys):
    write_csv(tmp_path / "a.csv", ("y", "user", "tags", "age"), ROWS)
    words = ("--label", "y", "--categorical", "user", "--multi-hot", "tags", "--dense", "age", "--min-count", 2)
    summary = prepared(capsys, "table", tmp_path / "a.csv", tmp_path / "out", *words, "--split", "order")
    assert summary["features"] == {"user": 8, "tags": 3}
    assert summary["splits"] == {"train": 80, "validation": 10, "test": 10}


def test_table_takes_files_of_splits(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    write_csv(tmp_path / "raw" / "train.csv", ("y", "user", "tags", "age"), ROWS[:70])
    write_csv(tmp_path / "raw" / "test.csv", ("y", "user", "tags", "age"), ROWS[70:])
    words = ("--label", "y", "--categorical", "user", "--dense", "age:standard", "--split", "files")
    given = prepared(capsys, "table", tmp_path / "raw", tmp_path / "given", *words)
    assert given["splits"] == {"train": 70, "validation": 0, "test": 30}
    assert given["features"] == {"user": 8}


def test_options_of_the_default_split_are_used(tmp_path, capsys):
    write_csv(tmp_path / "a.csv", ("y", "user", "tags", "age"), ROWS)
    words = ("--label", "y", "--categorical", "user", "--seed", 3, "--validation", "0.3", "--test", "0.05")
    prepared(capsys, "table", tmp_path / "a.csv", tmp_path / "without", *words)
    prepared(capsys, "table", tmp_path / "a.csv", tmp_path / "with", *words, "--split", "random")
    without, with_ = (PreparedData.open(tmp_path / name).manifest for name in ("without", "with"))
    assert without["files"] == with_["files"]
    assert without["options"]["splitting"]["validation"] == 0.3
    prepared(capsys, "table", tmp_path / "a.csv", tmp_path / "other", *words[:-6])
    assert PreparedData.open(tmp_path / "other").manifest["files"] != with_["files"]


def test_synthetic_data_sets(tmp_path, capsys):
    options = ("--rows", 1000, "--vocabulary-sizes", 50, 20, "--clusters", 4, "--num-dense", 0)
    summary = prepared(capsys, "synthetic", tmp_path / "out", *options)
    assert summary["features"] == {"c0": 51, "c1": 21}
    assert PreparedData.open(tmp_path / "out").manifest["oracle_bce"] == summary["oracle_bce"] > 0


def test_the_printed_summary_tells_everything(tmp_path, capsys):
    rows = [*ROWS[:9], ("x", "u", "", 1), (1, "u", "", -5)]
    write_csv(tmp_path / "a.csv", ("y", "user", "tags", "age"), rows)
    words = ["--label", "y", "--categorical", "user", "--dense", "age", "--max-bad-rows", "1"]
    assert main(["prepare", "table", str(tmp_path / "a.csv"), str(tmp_path / "out"), *words, "--split", "order"]) == 0
    out, _ = capsys.readouterr()
    assert f"table: {tmp_path / 'out'}, " in out
    assert "rows: train 8, validation 1, test 1" in out
    assert "left out: 0 rows by choice, 1 malformed" in out
    assert "line 11: y must be a number, got 'x'" in out
    assert "missing, now 0  negative, now 0" in out
    assert out.splitlines()[-1].split() == ["age", "0", "1"]
    assert main(["prepare", "synthetic", str(tmp_path / "s"), "--rows", "200"]) == 0
    assert "best possible BCE: 0." in capsys.readouterr().out


def test_without_pyarrow_one_is_told_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = rejected(capsys, "criteo-kaggle", tmp_path / "x", tmp_path / "out")
    assert install_hint("data") in error


def test_an_option_of_another_kind_is_rejected(tmp_path, capsys):
    write_csv(tmp_path / "a.csv", ("y", "user"), [(1, "u")])
    words = ("table", tmp_path / "a.csv", tmp_path / "out", "--label", "y", "--categorical", "user")
    assert "'modulus' is no option of 'table': there are label" in rejected(capsys, *words, "--modulus", 9)
    assert "'jobs' is no option of 'synthetic'" in rejected(capsys, "synthetic", tmp_path / "out", "--jobs", 2)


def test_the_words_of_every_recipe_are_those_of_the_verb(monkeypatch):
    """A recipe types the options of `cce prepare`: one that is dropped or renamed there breaks it."""
    found = []
    monkeypatch.setattr(prepare, "run", lambda options: found.append(options.kind))
    for path in sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml")):
        words = tomllib.loads(path.read_text()).get("data", {}).get("prepare")
        if words:
            kind, *others = shlex.split(words)
            raw = [] if kind == "synthetic" else [others.pop(0)]
            assert main(["prepare", kind, *raw, "out", *others]) == 0, path
    assert len(found) >= 5
