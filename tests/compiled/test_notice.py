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
import os, sys, warnings
import numpy as np
from cce.clustering.backends.native import sum_rows
from cce.compiled import notice

def compile_for(dtype, long):
    if not (child := os.fork()):
        warnings.simplefilter("error")
        notice.LONG = long
        rows, one, own = np.zeros((2, 3), dtype), np.zeros(2, dtype), np.zeros(2, np.int32)
        sum_rows(rows, one, own, one, 0, 2, np.zeros((1, 4)))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(file=sys.stderr)

compile_for(np.float32, 0.01)
compile_for(np.float32, 0.01)
compile_for(np.float64, 1000)
"""
LINE = "cce: compiling loops, usually once per machine; this can take half a minute.\n"


@pytest.mark.slow
def test_a_compilation_is_reported_when_it_is_long_and_only_when_it_happens(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", COMPILE]  # of forks
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    assert done.stderr == f"{LINE}\n\n\n"  # it is long, it is on disk, it is short


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
