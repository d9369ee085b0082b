"""The whole preparation: the same result whoever does the work, restarted after a kill, nothing half-written."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic, read_manifest
from cce.data.preparation import pipeline as module
from cce.data.preparation.job import Splitting
from cce.data.preparation.pipeline import Preparation, prepare_data
from cce.data.record_format import temporary_folder
from cce.data.sources.criteo import criteo_kaggle_job
from cce.files import FolderInUseError
from cce.workers import LocalEngine
from helpers.files import small_files
from helpers.raw_files import run

NUM_ROWS = 700


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    path = tmp_path_factory.mktemp("raw") / "train.txt"
    write_criteo_text(path, NUM_ROWS)
    return path


def job_of(raw, **changes):
    return replace(criteo_kaggle_job(raw), block_bytes=20_000, **changes)


def damaged(tmp_path, raw, changes):
    """The raw file with some lines replaced; counted from 1."""
    lines = raw.read_text().split("\n")
    for number, line in changes.items():
        lines[number - 1] = line
    (tmp_path / "bad.txt").write_text("\n".join(lines))
    return tmp_path / "bad.txt"


@pytest.mark.slow
def test_several_processes_and_other_blocks_give_the_same_files(raw, tmp_path):
    with LocalEngine(2) as engine:
        many = prepare_data(job_of(raw), tmp_path / "many", engine=engine, progress=False)
    one = run(replace(job_of(raw), block_bytes=1 << 25), tmp_path / "one").manifest
    assert many["files"] == one["files"]
    assert many["inputs"] == one["inputs"]
    assert many["inputs"][0]["bytes"] == raw.stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many", "one"]  # no folder aside is left


class Stopped(Exception):
    """As if the power had gone."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 5, 20, 40])
def test_a_preparation_goes_on_after_its_last_finished_part(raw, tmp_path, after, monkeypatch):
    """Stopped after so many tasks, it ends with the same files, and does not do again what it had done."""
    done = []

    class Counting(LocalEngine):
        def map(self, function, tasks):
            for task in tasks:
                if len(done) == after:
                    raise Stopped
                yield function(task)
                done.append(function.__name__)

    with pytest.raises(Stopped):
        prepare_data(job_of(raw), tmp_path / "out", engine=Counting(1), progress=False)
    assert temporary_folder(tmp_path / "out").exists()
    assert not (tmp_path / "out").exists()
    parsed = []
    monkeypatch.setattr(
        "cce.data.preparation.reading.parse_text",
        lambda *a, f=module.read_piece.__globals__["parse_text"]: parsed.append(1) or f(*a),
    )
    manifest = prepare_data(job_of(raw), tmp_path / "out", engine=LocalEngine(1), progress=False)
    num_pieces = -(-raw.stat().st_size // 20_000)
    assert len(parsed) == max(num_pieces - done.count("read_piece"), 0)
    assert manifest["files"] == run(job_of(raw), tmp_path / "again").manifest["files"]
    assert not temporary_folder(tmp_path / "out").exists()


@pytest.mark.slow
def test_other_options_or_inputs_begin_anew(raw, tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(raw.read_bytes())
    for job in (job_of(path), job_of(path, splitting=Splitting("order"))):
        preparation = Preparation(job, tmp_path / "out", LocalEngine(1), progress=False)
        preparation._begin()
        assert list(preparation.work.iterdir()) == []
        preparation._read()
        assert len(list(preparation.work.iterdir())) > 4
    os.utime(path, ns=(1, 1))
    preparation = Preparation(job, tmp_path / "out", LocalEngine(1), progress=False)
    preparation._begin()
    assert list(preparation.work.iterdir()) == []


@pytest.mark.slow
def test_a_killed_process_leaves_what_the_next_one_needs(tmp_path):
    write_criteo_text(tmp_path / "train.txt", 60_000)
    command = [sys.executable, "-m", "cce", "prepare", "criteo-kaggle", "train.txt", "out", "--jobs", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3] / "src")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started = time.monotonic()
    while not list((tmp_path / "out.part").glob("work/*.arrow")) and time.monotonic() - started < 30:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "out").exists()
    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.txt"]
    files = run(criteo_kaggle_job(tmp_path / "train.txt"), tmp_path / "whole").manifest["files"]
    assert read_manifest(tmp_path / "out")["files"] == files


@pytest.mark.slow
def test_of_two_preparations_into_one_folder_the_second_is_told_who_is_at_work(raw, tmp_path, monkeypatch):
    """The first is stopped in the middle, so that both are surely under way at once."""
    begun, go_on = threading.Event(), threading.Event()

    class Pausing(LocalEngine):
        def map(self, function, tasks):
            if function.__name__ == "encode_block":
                begun.set()
                assert go_on.wait(60)
            return super().map(function, tasks)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(prepare_data, job_of(raw), tmp_path / "out", engine=Pausing(1), progress=False)
        assert begun.wait(60)
        try:
            other = job_of(raw, splitting=Splitting("order", validation=0.3))
            with pytest.raises(FolderInUseError, match=rf"out\.part is in use by process {os.getpid()} on .* since 20"):
                run(other, tmp_path / "out")
            with pytest.raises(FolderInUseError, match=rf"out\.part is in use by process {os.getpid()} "):
                prepare_synthetic(tmp_path / "out", SyntheticConfig(num_rows=100), progress=False)
        finally:
            go_on.set()
        manifest = first.result()
    assert manifest["files"] == run(job_of(raw), tmp_path / "alone").manifest["files"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "out"]


@pytest.mark.slow
def test_two_commands_into_one_folder_give_the_data_of_one_of_them(tmp_path):
    write_criteo_text(tmp_path / "train.txt", 3000)
    command = [sys.executable, "-m", "cce", "prepare", "criteo-kaggle", "train.txt", "out", "--jobs", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3] / "src")}
    options = {"env": environment, "cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([*command, "--hash-ids", bits], **options) for bits in ("3", "7")]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in processes]
    (printed,) = [out for out, _, code in ended if code == 0]
    (told,) = [err for _, err, code in ended if code == 2]
    assert re.fullmatch(r"cce prepare: out(\.part is in use by .*| must not exist already.*)\n", told)
    sizes = {2**bits for (_, _, code), bits in zip(ended, (3, 7), strict=True) if code == 0}
    assert {max(json.loads(printed)["features"].values())} == sizes
    PreparedData.open(tmp_path / "out").verify_first()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.txt"]


@pytest.mark.slow
def test_malformed_rows_up_to_the_limit_are_left_out_counted_and_told(raw, tmp_path):
    path = damaged(tmp_path, raw, {3: "1\t2", 333: "yes" + "\t" * 39, 650: ""})
    manifest = run(job_of(path, max_bad_rows=3), tmp_path / "out").manifest
    assert manifest["rows"] == {"read": NUM_ROWS - 3, "left_out": 0, "malformed": 3}
    assert sum(manifest["splits"].values()) == NUM_ROWS - 3
    assert manifest["malformed"] == [
        f"{path}, line 3: expected 40 columns, got 2",
        f"{path}, line 333: label must be a number, got 'yes'",
        f"{path}, line 650: expected 40 columns, got a blank line",
    ]
    with pytest.raises(ValueError, match="at most max_bad_rows=2, got 3 or more"):
        run(job_of(path, max_bad_rows=2), tmp_path / "less")


def test_a_link_to_nothing_in_its_stead_is_not_touched(raw, tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="out must not exist already"):
        run(job_of(raw), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(NotADirectoryError, match="deep must lie in a folder, got a symbolic link to nothing"):
        run(job_of(raw), tmp_path / "out" / "deep")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2_000, 30_000])
def test_a_full_disk_is_told_by_name_and_leaves_nothing(raw, tmp_path, limit):
    with small_files(limit), pytest.raises(OSError, match=r"File too large: '.*/new/out\.part"):
        run(job_of(raw), tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []
