"""The log has a line for everything, and none twice after a resume."""

import json

import pytest

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


def test_what_comes_after_the_checkpoint_of_its_own_step_is_dropped_too(tmp_path):
    log = MetricsLog(tmp_path)
    for kind in ("train", "validation", "cluster", "test"):  # the last two happen again after a resume
        log.write(kind, 10, value=1.0)
    MetricsLog(tmp_path, step=10)
    assert [line["kind"] for line in read_metrics(tmp_path / "metrics.jsonl")] == ["train", "validation"]


@pytest.mark.parametrize("bad", [b'{"kind": "tr', b"\xff\xfe", b"[1]", b'{"kind": "train"}', b'{"kind": 1, "step": 2}'])
def test_a_bad_line_in_the_middle_is_named_and_the_others_are_kept(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"kind": "train", "step": 5}\n' + bad + b'\n{"kind": "train", "step": 10}\n')
    with pytest.raises(ValueError, match=r"^line 2 of .*metrics\.jsonl must be JSON with a kind and a step, got b"):
        read_metrics(path)
    log = MetricsLog(tmp_path, step=10)
    assert len(log.damage) == 1
    assert [line["step"] for line in read_metrics(path)] == [5, 10]


def test_a_new_run_begins_a_new_log(tmp_path):
    MetricsLog(tmp_path).write("train", 5)
    MetricsLog(tmp_path)
    assert read_metrics(tmp_path / "metrics.jsonl") == []
