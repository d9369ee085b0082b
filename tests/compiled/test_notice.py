"""A long compilation is reported on one line; loading from disk and short compilations are not."""

import os
import subprocess
import sys

import pytest

from cce import compiled

pytestmark = pytest.mark.skipif(not compiled.available, reason="compilation is off")

COMPILE = """
import os, sys, warnings
import numpy as np
from cce.clustering.backends.native import sum_rows
from cce.compiled import disk_cache

def compile_for(dtype, long):
    if not (child := os.fork()):
        warnings.simplefilter("error")
        disk_cache.LONG = long
        rows, one, own = np.zeros((2, 3), dtype), np.zeros(2, dtype), np.zeros(2, np.int32)
        sum_rows(rows, one, own, one, 0, 2, np.zeros((1, 4)))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(file=sys.stderr)

compile_for(np.float32, 0.05)
compile_for(np.float32, 0)
compile_for(np.float64, 1000)
"""
LINE = "cce: compiling loops, usually once per machine; this can take half a minute.\n"


@pytest.mark.slow
def test_a_compilation_is_reported_when_it_is_long_and_only_when_it_happens(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", COMPILE]  # of forks
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    assert done.stderr == f"{LINE}\n\n\n"  # it is long, it is on disk, it is short
