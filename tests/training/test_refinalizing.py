"""Another size for a finished run, from the int8 rows that it keeps."""

import json
import os
import signal

import pytest

from cce.cli import main
from cce.run_folder import RunFolder
from cce.runs import load_run
from cce.training import Trainer, curve_of_run, discard_rows, finalize_run, inspect_checkpoint, phases
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from helpers.runs import CCE, tiny_config, tiny_data

pytestmark = pytest.mark.slow
OPEN = {**CCE, "cap": None, "refits": 0, "epochs": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """50 steps an epoch; the third table is full, as its full table is smaller than any other."""
    return tiny_data(tmp_path_factory.mktemp("data") / "large", num_rows=4000, vocabulary_sizes=(2000, 900, 30))


@pytest.fixture
def run(data, tmp_path):
    Trainer(tiny_config(data, **OPEN), tmp_path / "run").run()
    return tmp_path / "run"


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "sizes.json"}


def newest(folder):
    return read_checkpoint(list_checkpoints(folder / "checkpoints")[-1])


def test_the_default_is_the_smallest_size_that_validation_cannot_tell_from_int8_rows(data, tmp_path):
    record = Trainer(tiny_config(data, **OPEN, tolerance=0.002), tmp_path / "run").run()
    *sizes, rows = record.sizes
    tried = [size for size in sizes if size["loss"] is not None]  # those that the choice depends on
    (chosen,) = [size for size in sizes if size["is_chosen"]]
    assert chosen == next(size for size in tried if size["loss"] <= rows["loss"] + 0.002)
    assert len({size["loss"] for size in tried}) > 2
    assert record.curve[-1]["bce"] == pytest.approx(chosen["loss"])


def test_the_curve_changes_nothing_but_its_file(run, capsys):
    before = files(run)
    sizes = curve_of_run(run)
    assert files(run) == before
    assert json.loads((run / "sizes.json").read_text()) == sizes
    assert [size["nbytes"] for size in sizes[:-1]] == sorted(size["nbytes"] for size in sizes[:-1])
    assert main(["finalize", str(run), "--curve"]) == 0
    out = capsys.readouterr().out
    assert "bytes served" in out
    assert "int8 rows" in out


def test_a_run_is_finalized_again_and_again(run, capsys):
    sizes = curve_of_run(run)
    for size in (sizes[0], sizes[-2], sizes[0]):
        others = sum(t.nbytes for t in RunFolder(run).read_record().tables if t.method == "full")
        record = finalize_run(run, nbytes=size["nbytes"] + others)
        assert record.nbytes <= size["nbytes"] + others
        assert record.curve[-1]["bce"] == pytest.approx(size["loss"])
        assert record.config["nbytes"] == size["nbytes"] + others
        assert load_run(run).model.tables.nbytes == record.nbytes
        assert RunFolder(run).read_record() == record
    assert main(["finalize", str(run), "--bits", "4", "--refits", "1"]) == 0
    record = RunFolder(run).read_record()
    assert len(record.curve) == 2  # finalized, and refitted
    assert next(size["bits"] for size in record.sizes if size["is_chosen"]) <= 4
    assert "bits per id" in str(inspect_checkpoint(run))
    assert Trainer.resume(run).run().curve == record.curve


def test_int8_rows_may_be_discarded(run, capsys):
    discard_rows(run)
    assert newest(run).state["phases"]["finalize"]["rows_steps"] == []
    assert load_run(run).model.tables.nbytes == RunFolder(run).read_record().nbytes
    with pytest.raises(ValueError, match="must have int8 rows to finalize: it has none, or they were discarded"):
        finalize_run(run)


def test_a_size_that_cannot_be_and_an_interruption_change_nothing(run, monkeypatch):
    before = files(run)
    with pytest.raises(ValueError, match="nbytes must be"):
        finalize_run(run, nbytes=10)
    assert newest(run).step == 51

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(phases, "finalize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finalize_run(run, bits=2)
    after = files(run)
    kept = [path for path in before if path.name != "metrics.jsonl"]
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    assert load_run(run).step == 51


def test_runs_whose_size_was_given_or_that_are_not_finished_are_rejected(data, tmp_path, run):
    Trainer(tiny_config(data, **OPEN | {"cap": 64}), tmp_path / "cap").run()
    with pytest.raises(ValueError, match="RUN must have tables whose size is open, got cap=64"):
        finalize_run(tmp_path / "cap")
    (run / "record.jsonl").unlink()
    with pytest.raises(ValueError, match="must be a finished run: resume with"):
        curve_of_run(run)
