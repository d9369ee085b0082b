"""One run of a sweep: trained once, whoever is asked to."""

import os
import signal
from dataclasses import replace

import pytest

from cce.records import read_records
from cce.run_folder import RunFolder
from cce.training import Trainer
from cce_lab.sweeps.runs import Task, run_one
from helpers.sweeps import tiny_runs

pytestmark = pytest.mark.slow


@pytest.fixture
def tasks(data, tmp_path):
    """By series: full, cce and pq."""
    runs = [run.placed(tmp_path) for run in tiny_runs(data)]
    return {run.series: Task(run, RunFolder(tmp_path / run.name), is_source=run.series == "full") for run in runs}


def test_a_run_needs_the_one_that_it_starts_from(tasks):
    pq = tasks["pq"]
    assert run_one(pq) == "full-seed0, which it starts from, is not finished."
    assert run_one(tasks["full"]) is None
    assert tasks["full"].folder.checkpoints.is_dir()
    assert run_one(pq) is None
    assert read_records(pq.folder.record)[0].curve == []


def test_a_failure_is_told_and_kept_until_the_run_is_finished(tasks):
    task = tasks["cce"]
    options = {"settings": {"max_iter": 0}}
    wrong = replace(task, run=replace(task.run, config=replace(task.run.config, method_options=options)))
    ended = run_one(wrong)
    assert ended.endswith("ClusterSettings: max_iter must lie in [1, 2**31), got 0.")
    assert "Traceback" in task.folder.error.read_text()
    assert run_one(task) is None
    assert not task.folder.error.exists()


def test_ctrl_c_in_the_last_moment_ends_the_run_and_stops_the_sweep(tasks, monkeypatch):
    """The run is done, and is not interrupted; but no other is to begin."""
    finish = Trainer._finish

    def finish_and_signal(trainer, *names):
        os.kill(os.getpid(), signal.SIGINT)
        return finish(trainer, *names)

    monkeypatch.setattr(Trainer, "_finish", finish_and_signal)
    with pytest.raises(KeyboardInterrupt):
        run_one(tasks["cce"])
    assert len(read_records(tasks["cce"].folder.record)) == 1
