"""Loops are compiled where they can be, and are what they were where they cannot."""

import os
import subprocess
import sys

import pytest
import torch

import cce
from cce import compiled
from cce.compiled import compile_loops, loops


def test_loops_are_compiled_unless_that_is_turned_off():
    assert compiled.available is (os.environ.get("CCE_COMPILED") != "0")
    assert compiled.available is (compiled.why_plain == "")


def test_a_function_in_no_file_is_compiled_all_the_same():
    names = {"compile_loops": compile_loops}
    exec("def doubled(x):\n    return x + x\nloops = compile_loops(doubled)", names)
    assert names["loops"](3) == 6


PLAIN = """
import sys, warnings
import torch, cce
from cce import compiled

def loop(x):
    return x

assert compiled.available is False
assert compiled.compile_loops(loop) is loop
table = cce.embeddings.ClusteredEmbedding(3_000, 8, num_rows=100, generator=torch.Generator().manual_seed(0))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    table.cluster(generator=torch.Generator().manual_seed(0))
    table(torch.arange(10))
print(*[w.message for w in caught], sep="\\n")
torch.save(table.state_dict(), sys.argv[1])
"""
MISSING = """
import importlib.machinery, sys
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == "numba" else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
"""


@pytest.mark.slow
def test_without_numba_plain_torch_does_the_same_work_and_says_once_why(tmp_path):
    words = [sys.executable, "-c", MISSING + PLAIN, str(tmp_path / "state.pt")]
    environment = {**os.environ, "CCE_COMPILED": ""}
    result = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "cce runs in plain torch, many times slower than compiled loops: "
        "numba cannot be imported (ModuleNotFoundError: No module named 'numba')."
    ]
    table = cce.embeddings.ClusteredEmbedding(3_000, 8, num_rows=100, generator=torch.Generator().manual_seed(0))
    table.cluster(generator=torch.Generator().manual_seed(0))
    for name, value in torch.load(tmp_path / "state.pt").items():
        assert torch.equal(value, table.state_dict()[name]), name


def test_why_nothing_is_compiled_is_told(monkeypatch):
    monkeypatch.setenv("CCE_COMPILED", "no")
    with pytest.raises(ValueError, match="CCE_COMPILED must be 0 or 1, got 'no'"):
        loops._why_plain()
    monkeypatch.setenv("CCE_COMPILED", "0")
    assert loops._why_plain() == "CCE_COMPILED=0 is set"
    monkeypatch.setenv("CCE_COMPILED", "")
    if compiled.available:
        monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
        assert loops._why_plain() == "NUMBA_DISABLE_JIT=1 is set"
    monkeypatch.setitem(sys.modules, "numba", None)
    assert loops._why_plain().startswith("numba cannot be imported (ModuleNotFoundError: import of numba halted")
