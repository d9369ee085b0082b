"""The log has a line for everything, and none twice after a resume."""

import json

from cce.training.metrics_log import MetricsLog, read_metrics


def test_lines_are_json_and_what_is_no_number_is_null(tmp_path):
    log = MetricsLog(tmp_path)
    log.write("train", 5, loss=0.5, auc=float("nan"))
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {
        "kind": "train",
        "step": 5,
        "loss": 0.5,
        "auc": None,
    }


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
    log = MetricsLog(tmp_path)
    for step in (5, 10, 15):
        log.write("train", step, loss=0.5)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tr')  # killed
    MetricsLog(tmp_path, step=10).write("train", 11, loss=0.4)
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [5, 10, 11]


def test_a_new_run_begins_a_new_log(tmp_path):
    MetricsLog(tmp_path).write("train", 5)
    MetricsLog(tmp_path)
    assert read_metrics(tmp_path / "metrics.jsonl") == []
