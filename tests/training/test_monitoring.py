"""What a run shows, and its log: a line for everything, and none twice after a resume."""

import json
import sys
import time

import numpy as np
import pytest

from cce.run_folder import RunFolder
from cce.training import monitoring as module
from cce.training.monitoring import MetricsLog, PeakMemory, Progress, Stopwatch


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def started(total, *, shown, first_row=0):
    progress = Progress(shown=shown)
    progress.start(total, "cce", first_row=first_row)
    return progress


def test_lines_come_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    progress = started(1000, shown=True, first_row=100)
    progress.update(25)
    progress.update(25, loss="0.5")
    progress.say("step 3: clustered")
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" rows, ")[0] for line in lines[:-1]][-2:] == ["cce: 125 of 1.00k", "cce: 150 of 1.00k"]
    assert lines[-2].endswith(" left, loss 0.5")
    assert lines[-1] == "step 3: clustered"


def test_a_terminal_has_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = started(1000, shown=True)
    progress.update(500, validation="0.4")
    progress._bar.refresh()
    assert "cce:" in terminal.text
    assert "validation 0.4" in terminal.text
    progress.close()


def test_nothing_is_shown_if_nothing_is_wanted(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    progress = started(10, shown=False)
    progress.update(5)
    progress.say("x")
    assert capsys.readouterr().err == ""


def test_the_peak_of_memory_is_measured_above_what_there_was_before():
    held = np.ones(1 << 22)  # 34 MB of before
    memory = PeakMemory()
    with memory.phase("small"):
        time.sleep(0.05)
    with memory.phase("large"):
        grown = np.ones(1 << 23)  # 67 MB
        time.sleep(0.1)
        del grown
    assert held[0] == 1
    assert memory.peaks["small"] < 20 * 10**6
    assert 60 * 10**6 < memory.peaks["large"] < 90 * 10**6
    memory.merge({"large": 10**9, "other": 3})
    assert (memory.peaks["large"], memory.peaks["other"]) == (10**9, 3)


def test_seconds_add_up_by_part():
    watch = Stopwatch()
    for _ in range(2):
        with watch("a"):
            time.sleep(0.01)
    with pytest.raises(ValueError, match="x"), watch("b"):
        raise ValueError("x")
    assert watch.seconds["a"] >= 0.02
    assert set(watch.seconds) == {"a", "b"}


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_lines_are_json_and_what_is_not_finite_is_null(folder):
    log = MetricsLog(folder)
    log.write("train", 5, loss=0.5, auc=float("nan"))
    assert json.loads(folder.log.read_text()) == {"kind": "train", "step": 5, "loss": 0.5, "auc": None}


def test_a_resumed_run_drops_what_came_after_its_checkpoint(folder):
    log = MetricsLog(folder)
    for step in (5, 10, 15):
        log.write("train", step, loss=0.5)
    with folder.log.open("a") as file:
        file.write('{"kind": "tr')  # killed
    MetricsLog(folder, step=10).write("train", 11, loss=0.4)
    assert [line["step"] for line in folder.scan_log()[0]] == [5, 10, 11]


def test_a_new_run_begins_a_new_log(folder):
    MetricsLog(folder).write("train", 5)
    MetricsLog(folder)
    assert folder.scan_log()[0] == []


def test_a_process_that_is_not_the_main_one_writes_nothing():
    MetricsLog(None).write("train", 5, loss=0.5)


@pytest.mark.slow
def test_tensorboard_has_every_event_once_after_a_resume(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = MetricsLog(folder, logger="tensorboard")
    for kind, step in (("train", 5), ("validation", 10), ("cluster", 10), ("train", 15)):
        log.write(kind, step, value=float(step))
    log.close()
    log = MetricsLog(folder, step=10, logger="tensorboard")
    log.write("cluster", 10, value=10.0)
    log.write("train", 15, value=15.0)
    log.close()
    events = accumulator.EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    found = {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == {"train/value": [5, 15], "validation/value": [10], "cluster/value": [10]}
