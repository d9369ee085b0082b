"""A long compilation is reported on one line; loading from disk and short compilations are not."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cce import compiled
from cce.compiled import notice

pytestmark = pytest.mark.skipif(not compiled.available, reason="compilation is off")

COMPILE = """
import sys
from cce.compiled import notice
notice.LONG = float(sys.argv[1])
import numpy as np
from cce.clustering.backends.native import sum_rows
rows, one, own = np.zeros((2, 3), np.float32), np.zeros(2, np.float32), np.zeros(2, np.int32)
sum_rows(rows, one, own, one, 0, 2, np.zeros((1, 4)))
"""
LINE = "cce: compiling loops, usually once per machine; this can take half a minute.\n"


@pytest.mark.slow
def test_a_compilation_is_reported_when_it_is_long_and_only_when_it_happens(tmp_path):
    def stderr(long):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / str(long))}
        command = [sys.executable, "-W", "error", "-c", COMPILE, str(long)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True).stderr

    assert stderr(0.01) == LINE
    assert stderr(0.01) == ""  # now it is on disk
    assert stderr(1000) == ""


def event(module):
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def test_compilations_inside_of_others_and_one_after_the_other_are_added_up(monkeypatch):
    clock, listener = [0.0], notice.CompilationNotice()
    monkeypatch.setattr(notice.time, "perf_counter", lambda: clock[0])
    for seconds in (0.5, 0.75):
        listener.on_start(event("cce.kernels"))
        listener.on_start(event("cce.compiled"))
        listener.on_end(event("cce.compiled"))
        clock[0] += seconds
        listener.on_end(event("cce.kernels"))
    assert listener.seconds == 1.25
    assert listener.timer is None


def test_compilations_of_other_packages_are_none_of_our_business():
    listener = notice.CompilationNotice()
    listener.on_start(event("someone.elses"))
    assert listener.depth == 0
    assert listener.timer is None
