"""Sweeps: all runs, once each, whatever happens on the way."""

import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cce.records import read_records
from cce.training import Trainer
from cce_lab.sweeps.running import Sweep
from helpers.sweeps import TRAIN, essence, tiny_runs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A sweep that nobody disturbed."""
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    outcome = Sweep(tiny_runs(data), out, recipe="# é\n").run()
    assert outcome.failures == {}
    return out, outcome.records


def names(runs):
    return [run.name for run in runs]


def checkpoints(out):
    return sorted(path.parent.name for path in out.glob("runs/*/checkpoints"))


def test_every_run_leaves_a_record_and_no_checkpoint(whole, data):
    out, records = whole
    assert [record.name for record in records] == ["cce-cap320-seed0", "full-seed0", "pq-cap320-seed0"]
    assert [record.series for record in records] == ["cce", "full", "pq"]
    assert read_records(out / "records.jsonl") == records
    assert (out / "recipe.toml").read_text() == "# é\n"
    assert checkpoints(out) == []
    for record in records:
        assert "commit" in record.environment  # None where the package is no checkout
        assert record.environment["processor"]
        assert record.num_params > 0
        assert record.nbytes > 0


def test_finished_runs_are_not_run_again(whole, data, monkeypatch):
    out, records = whole
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(Trainer, "__init__", None)
    sweep = Sweep(tiny_runs(data), out)
    assert sweep.left() == []
    assert sweep.run().records == records
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before


def test_two_processes_give_the_same_records(whole, data, tmp_path):
    outcome = Sweep(tiny_runs(data), tmp_path).run(jobs=2)
    assert outcome.failures == {}
    assert [essence(record) for record in outcome.records] == [essence(record) for record in whole[1]]
    assert outcome.records[0].environment["threads"] == 1


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `ray`")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_local_ray_gives_the_same_records(whole, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = Sweep(tiny_runs(data), Path("sweep")).run(jobs=2, engine="ray")
    assert outcome.failures == {}
    assert [essence(record) for record in outcome.records] == [essence(record) for record in whole[1]]
    assert {record.environment["threads"] for record in outcome.records} == {1}
    assert read_records(tmp_path / "sweep" / "records.jsonl") == outcome.records


KILLED = """
import os, signal, sys
from pathlib import Path
from cce import run_folder
from cce_lab.sweeps.running import Sweep
from cce.training import Trainer
from cce.training.phases import TrainPhase
from helpers.sweeps import tiny_runs

place, name, count = sys.argv[3], sys.argv[4], int(sys.argv[5])
owner = {"Trainer": Trainer, "TrainPhase": TrainPhase, "run_folder": run_folder}[place]
function, seen = getattr(owner, name), [0]

def wrapper(*args, **kwargs):
    seen[0] += 1
    if seen[0] == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **kwargs)

setattr(owner, name, wrapper)
Sweep(tiny_runs(Path(sys.argv[1])), Path(sys.argv[2])).run()
"""


@pytest.mark.parametrize(
    ("moment", "finished"),
    [
        (("TrainPhase", "train_step", "20"), 0),  # in the second epoch of the first run
        (("TrainPhase", "train_step", "40"), 1),  # in the second run
        (("run_folder", "write_records", "1"), 0),  # trained, tested, and the record not yet written
        (("Trainer", "_open", "3"), 2),  # between the full table's run and the one that starts from it
    ],
)
def test_a_sweep_that_was_killed_ends_as_if_it_had_not_been(whole, data, tmp_path, moment, finished):
    command = [sys.executable, "-c", KILLED, str(data), str(tmp_path), *moment]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, env=environment, timeout=300).returncode == -signal.SIGKILL
    sweep = Sweep(tiny_runs(data), tmp_path)
    assert len(sweep.left()) == 3 - finished
    if finished == 2:
        assert checkpoints(tmp_path) == ["full-seed0"]
    outcome = sweep.run()
    assert [essence(record) for record in outcome.records] == [essence(record) for record in whole[1]]
    assert checkpoints(tmp_path) == []


def test_a_run_whose_source_fails_is_told_as_such(data, tmp_path):
    runs = tiny_runs(data)
    broken = [
        replace(run, config=replace(run.config, optimizer="adma")) if run.series == "full" else run for run in runs
    ]
    outcome = Sweep(broken, tmp_path).run()
    assert outcome.failures["pq-cap320-seed0"] == "full-seed0, which it starts from, is not finished."
    assert set(outcome.failures) == {"full-seed0", "pq-cap320-seed0"}


def test_a_changed_recipe_is_rejected_and_new_seeds_are_not(whole, data):
    with pytest.raises(ValueError, match=r"out must be a new folder, .*: full-seed0 in .* with another epochs, lr."):
        Sweep(tiny_runs(data, train=TRAIN | {"lr": 0.02, "epochs": 3}), whole[0])
    sweep = {"methods": ["full"], "caps": [320, 640], "seeds": [0, 1]}
    more = Sweep(tiny_runs(data, sweep=sweep), whole[0])
    assert "cce-cap640-seed0" in names(more.left())
    assert "cce-cap320-seed0" not in names(more.left())
    assert "full-seed0" in names(more.left())  # its checkpoints were dropped, and pq-cap640-seed0 needs them


def test_a_sweep_of_some_series_keeps_what_the_others_will_need(whole, data, tmp_path):
    first = Sweep(tiny_runs(data), tmp_path, only=["full"])
    assert names(first.chosen) == ["full-seed0"]
    first.run()
    assert checkpoints(tmp_path) == ["full-seed0"]
    second = Sweep(tiny_runs(data), tmp_path, only=["pq"])
    assert names(second.chosen) == ["full-seed0", "pq-cap320-seed0"]
    assert names(second.left()) == ["pq-cap320-seed0"]
    records = second.run().records
    assert [essence(record) for record in records] == [essence(record) for record in whole[1][1:]]
    assert checkpoints(tmp_path) == []


def test_a_source_is_trained_again_if_its_checkpoints_are_needed_once_more(whole, data, tmp_path):
    Sweep(tiny_runs(data, series={}), tmp_path, only=["full"]).run()
    assert checkpoints(tmp_path) == []
    records = Sweep(tiny_runs(data), tmp_path, only=["pq"]).run().records
    assert [essence(record) for record in records] == [essence(record) for record in whole[1][1:]]


def test_a_moved_folder_goes_on(data, tmp_path):
    Sweep(tiny_runs(data), tmp_path / "here").run()
    (tmp_path / "here").rename(tmp_path / "there")
    assert Sweep(tiny_runs(data), tmp_path / "there").left() == []


OTHER = """
import sys
from pathlib import Path
from cce_lab.sweeps.running import Sweep
from helpers.sweeps import tiny_runs
outcome = Sweep(tiny_runs(Path(sys.argv[1])), Path(sys.argv[2])).run()
assert outcome.failures == {}, outcome.failures
"""


def test_two_sweeps_on_one_folder_share_the_runs(whole, data, tmp_path):
    """Each run is trained once: its configuration is written by one of them only, and both end with all records."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", OTHER, str(data), str(tmp_path)]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    found = read_records(tmp_path / "records.jsonl")
    assert [essence(record) for record in found] == [essence(record) for record in whole[1]]
