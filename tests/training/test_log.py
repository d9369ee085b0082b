"""The log has a line for everything, and none twice after a resume; how it is read is in tests/test_run_folder.py."""

import json

import pytest

from cce.run_folder import RunFolder
from cce.training.log import MetricsLog


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
    assert [line["step"] for line in folder.read_log()] == [5, 10, 11]


def test_a_new_run_begins_a_new_log(folder):
    MetricsLog(folder).write("train", 5)
    MetricsLog(folder)
    assert folder.read_log() == []


def test_a_process_that_is_not_the_main_one_writes_nothing():
    MetricsLog(None).write("train", 5, loss=0.5)


def test_tensorboard_has_every_event_once_after_a_resume(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = MetricsLog(folder, tensorboard=True)
    for kind, step in (("train", 5), ("validation", 10), ("cluster", 10), ("train", 15)):
        log.write(kind, step, value=float(step))
    log.close()
    log = MetricsLog(folder, step=10, tensorboard=True)
    log.write("cluster", 10, value=10.0)
    log.write("train", 15, value=15.0)
    log.close()
    events = accumulator.EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    found = {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == {"train/value": [5, 15], "validation/value": [10], "cluster/value": [10]}
