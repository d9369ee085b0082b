"""Engines: the same results in the same order, in one process or several."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cce.workers import LocalEngine, num_cores, open_engine


def square(number):
    return number * number, os.getpid()


def fail(number):
    raise ValueError(f"number must be even, got {number}.")


def test_one_job_works_in_this_process():
    with LocalEngine(1) as engine:
        assert list(engine.map(square, range(4))) == [(n * n, os.getpid()) for n in range(4)]


@pytest.mark.slow
def test_two_jobs_work_in_others_and_keep_the_order():
    with open_engine("local", 2) as engine:
        results = list(engine.map(square, range(20)))
        assert [result for result, _ in results] == [n * n for n in range(20)]
        assert os.getpid() not in {process for _, process in results}
        with pytest.raises(ValueError, match="number must be even, got 0"):
            list(engine.map(fail, range(3)))


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    assert num_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert num_cores() == os.cpu_count()


INTERRUPTED = """
import os, sys, time
from pathlib import Path
from cce.workers import LocalEngine

def work(name):
    (Path(sys.argv[1]) / f"{name}.begun").touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        (Path(sys.argv[1]) / f"{name}.saved").touch()
        raise

if __name__ == "__main__":
    try:
        with LocalEngine(2) as engine:
            list(engine.map(work, ["a", "b", "c", "d", "e"]))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def interrupted(tmp_path):
    """Two tasks of five under way in two processes of another one, in a terminal's group of their own."""
    (tmp_path / "work.py").write_text(INTERRUPTED)
    command = [sys.executable, str(tmp_path / "work.py"), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
    yield tmp_path, process
    process.kill()
    process.wait()
    process.stderr.close()


def wait_for(is_so, seconds=60):
    started = time.monotonic()
    while not is_so():
        assert time.monotonic() - started < seconds
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("send", [os.kill, os.killpg])  # by `kill`, and by a terminal, which tells the whole group
def test_ctrl_c_reaches_every_task_once_and_no_other_is_begun(interrupted, send):
    folder, process = interrupted
    send(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    assert sorted(path.name for path in folder.glob("*.begun")) == ["a.begun", "b.begun"]
    assert sorted(path.name for path in folder.glob("*.saved")) == ["a.saved", "b.saved"]


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(word) for word in listed.split()]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


@pytest.mark.slow
def test_processes_end_with_the_one_that_began_them(interrupted):
    _, process = interrupted
    workers = children(process.pid)
    assert len(workers) >= 2
    process.kill()
    wait_for(lambda: not any(is_alive(pid) for pid in workers))
