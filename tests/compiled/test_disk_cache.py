"""Compiled code on disk: bound to the text of all loops, compiled once for all processes, never mixed up."""

import os
import subprocess
import sys
import time

import pytest

from cce import compiled
from cce.compiled import compile_loops, disk_cache
from cce.files import lock_folder

pytestmark = pytest.mark.skipif(not compiled.available, reason="compilation is off")


def doubled(value):
    return value + value


def test_the_folder_is_named_by_the_text_of_all_loops(tmp_path):
    folder = disk_cache.function_folder(doubled)
    assert folder.parent.name == disk_cache.digest(disk_cache.PACKAGE)[:16]
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "one.py").write_text("BLOCK = 256")
    before = disk_cache.digest(tmp_path)
    disk_cache.digest.cache_clear()
    (package / "one.py").write_text("BLOCK = 512")
    assert disk_cache.digest(tmp_path) != before


def test_what_is_compiled_is_marked():
    loops = compile_loops(doubled)
    assert loops(3) == 6
    assert all(disk_cache.marker(loops, signature).exists() for signature in loops.signatures)


MADE = """
from cce.compiled import compile_loops


@compile_loops
def inner(x):
    return x + x


@compile_loops
def outer(x):
    total = inner(x)
    for _ in range(3):
        total = inner(total)
    return total
"""
CALL = """
import sys
import made
value = {"int": 3, "float": 2.5, "complex": 1j}[sys.argv[1]]
print("ready", flush=True)
print(made.outer(value))
"""
RESULTS = {"int": "48", "float": "40.0", "complex": "16j"}


@pytest.fixture
def start(tmp_path):
    """Start a process that calls the loops for one type, with a cache of its own."""
    (tmp_path / "made.py").write_text(MADE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def start_one(kind):
        words = [sys.executable, "-c", CALL, kind]
        return subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    return start_one


def result(process):
    return process.communicate(timeout=300)[0].split()[-1]


@pytest.mark.slow
def test_processes_that_compile_at_once_share_what_they_compile(tmp_path, start):
    """Five processes, three types: each type is compiled once, and everyone runs his own code."""
    for kinds in (["int", "float", "complex", "int", "float"], list(RESULTS)):
        processes = [(kind, start(kind)) for kind in kinds]
        for kind, process in processes:
            assert result(process) == RESULTS[kind], kind
    codes = list((tmp_path / "cache").rglob("*.nbc"))
    assert len(codes) == 2 * len(RESULTS)
    assert not list((tmp_path / "cache").rglob(".lock"))


@pytest.mark.slow
def test_a_process_waits_while_another_compiles(tmp_path, start):
    first = start("int")
    assert first.stdout.readline() == "ready\n"
    started = time.perf_counter()
    assert result(first) == RESULTS["int"]
    seconds = time.perf_counter() - started
    folder = next((tmp_path / "cache").rglob("made.outer"))
    with lock_folder(folder):
        waiting = start("float")
        assert waiting.stdout.readline() == "ready\n"
        time.sleep(1 + 3 * seconds)  # in which it would be done, if it did not wait
        assert waiting.poll() is None
        assert len(list(folder.glob("*.compiled"))) == 1
    assert result(waiting) == RESULTS["float"]
