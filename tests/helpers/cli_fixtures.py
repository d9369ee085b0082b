"""Fixtures of tests that type commands: a trained run, a pack of it, and bad input."""

import pytest

from cce.cli import main
from helpers.raw_runs import held_out_rows, train_on_raw, write_rows


@pytest.fixture(scope="session")
def raw_run(tmp_path_factory):
    """A folder with a run on raw rows; `alone/` in it has a pack of it and new rows without labels."""
    folder = tmp_path_factory.mktemp("predicting")
    train_on_raw(folder)
    (folder / "alone").mkdir()
    assert main(["pack", str(folder / "run"), "-o", str(folder / "alone" / "one.ccez"), "--json"]) == 0
    write_rows(folder / "alone" / "new.csv", held_out_rows(), ("user", "item", "tags", "age"))
    return folder


@pytest.fixture
def alone(raw_run, monkeypatch):
    """The folder of the pack, to work in."""
    monkeypatch.chdir(raw_run / "alone")
    return raw_run / "alone"


@pytest.fixture
def rejected(alone, capsys):
    """`rejected(words)`: what is printed of bad input: one line, exit status 2, and nothing left behind."""

    def run(words):
        before = sorted(alone.rglob("*"))
        assert main(list(words)) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert sorted(alone.rglob("*")) == before
        return line

    return run
