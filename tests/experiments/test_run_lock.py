"""A run is trained by one process at a time."""

import importlib.util
import os
import subprocess
import sys
import time

from cce.experiments.run_lock import run_lock

HOLDER = """
import sys, time
from pathlib import Path
from cce.experiments.run_lock import run_lock
with run_lock(Path(sys.argv[1]), wait=True) as is_ours:
    print(is_ours, flush=True)
    time.sleep(60)
"""


def test_another_process_holds_it_until_it_ends_however_it_ends(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout.readline() == "True\n"
        with run_lock(tmp_path / "run", wait=False) as is_ours:
            assert not is_ours
        holder.kill()
        started = time.monotonic()
        with run_lock(tmp_path / "run", wait=True) as is_ours:
            assert is_ours
    assert time.monotonic() - started < 30


def test_it_is_let_go_of_at_the_end(tmp_path):
    for _ in range(2):
        with run_lock(tmp_path, wait=False) as is_ours:
            assert is_ours
    with run_lock(tmp_path / "other", wait=False) as is_ours:
        assert is_ours


def test_a_system_without_locks_does_without(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with run_lock(tmp_path, wait=False) as one, run_lock(tmp_path, wait=False) as two:
        assert one
        assert two
    assert os.listdir(tmp_path) == []
