"""The folder of a run: what is begun, what is finished, and how its log and record are read."""

import json
import re

import pytest

from cce.files import FolderInUseError
from cce.records import RunRecord
from cce.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


RECORD = RunRecord(method="cce", seed=0, num_params=10, nbytes=40, scores={"bce": 0.5}, seconds=1.0)


def test_a_run_is_begun_by_its_options_and_finished_by_its_record(folder):
    assert not folder.is_begun
    folder.path.mkdir()
    folder.config.write_text("")
    assert (folder.is_begun, folder.is_finished) == (True, False)
    folder.write_record(RECORD)
    assert folder.is_finished
    assert folder.read_record() == RECORD


def test_one_process_at_a_time_works_on_it(folder):
    with folder.lock(), pytest.raises(FolderInUseError, match="is in use by process"), folder.lock():
        pass


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", "nonsense\n", '{"method": "cce"}'])
def test_a_record_that_is_none_is_named(folder, text):
    folder.path.mkdir()
    folder.record.write_text(text)
    with pytest.raises(ValueError, match=rf"^{folder.record} must hold the record of a run: ") as raised:
        folder.read_record()
    assert "\n" not in str(raised.value)


def test_what_comes_after_the_checkpoint_of_its_own_step_is_cut_too(folder):
    folder.path.mkdir()
    for kind in ("train", "validation", "cluster", "test"):  # the last two happen again after a resume
        folder.append_log({"kind": kind, "step": 10, "value": 1.0})
    kept, damage = folder.cut_log(10)
    assert [line["kind"] for line in kept] == ["train", "validation"]
    assert folder.scan_log()[0] == kept
    assert damage == []
    assert folder.cut_log(0) == ([], [])  # no checkpoint: everything happens again


@pytest.mark.parametrize("bad", [b'{"kind": "tr', b"\xff\xfe", b"[1]", b'{"kind": "train"}', b'{"kind": 1, "step": 2}'])
def test_a_bad_line_in_the_middle_is_named_and_the_others_are_kept(folder, bad):
    folder.path.mkdir()
    folder.log.write_bytes(b'{"kind": "train", "step": 5}\n' + bad + b'\n{"kind": "train", "step": 10}\n')
    kept, damage = folder.cut_log(10)
    assert len(damage) == 1
    assert re.match(r"line 2 of .*metrics\.jsonl must be JSON with a kind and a step, got b", damage[0])
    assert [line["step"] for line in kept] == [5, 10]
    assert folder.scan_log()[0] == kept


def test_a_last_line_that_a_kill_cut_short_is_left_out(folder):
    folder.path.mkdir()
    folder.append_log({"kind": "train", "step": 5, "loss": float("inf")})
    with folder.log.open("a") as file:
        file.write('{"kind": "tra')
    assert folder.scan_log()[0] == [{"kind": "train", "step": 5, "loss": None}]
    json.loads(folder.log.read_text().splitlines()[0], parse_constant=pytest.fail)


def test_a_run_without_a_log_has_no_lines(folder):
    assert folder.scan_log()[0] == []
