"""Compilation in a process of its own, while plain torch does the work.

A thread would not do. numba holds the GIL for most of a compilation, so the caller would wait all the same; and a
process that ends or forks while another thread is inside LLVM, under numba's lock, may crash or wait for ever. A child
process uses another core, writes to the cache that all processes share (`disk_cache`), and may outlive its parent: the
next process then finds its code.
"""

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cce.compiled.disk_cache import marker

START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); import cce.compiled.background as b; b.main()"

_children: dict[Path, subprocess.Popen[bytes]] = {}


def is_compiled(loops: Any, arguments: Sequence[Any]) -> bool:
    """Whether code for such arguments is here or on disk, or must be compiled here; if not, a child begins with it.

    `CCE_COMPILED=1` compiles here, and so does a process whose child has failed.
    """
    if not hasattr(loops, "folder") or os.environ.get("CCE_COMPILED") == "1" or not sys.executable:
        return True
    signature = tuple(map(import_module("numba").typeof, arguments))
    if signature in loops.signatures:
        return True
    path = marker(loops, signature)
    if path.exists():
        return True
    if path not in _children:
        _children[path] = _start(loops, signature)
    return _children[path].poll() is not None


def _start(loops: Any, signature: Any) -> subprocess.Popen[bytes]:
    """Start a process that compiles the loops; Ctrl-C does not reach it."""
    devnull = subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=devnull, stderr=devnull, start_new_session=True
    )
    assert child.stdin is not None
    with child.stdin as pipe:
        pickle.dump(sys.path, pipe)
        pickle.dump((loops.__module__, loops.__name__, signature), pipe)
    return child


def main() -> None:
    """Compile what the parent asks for."""
    module, name, signature = pickle.load(sys.stdin.buffer)
    getattr(import_module(module), name).compile(signature)


@atexit.register
def _let_go() -> None:
    """Leave children that are still at work to themselves, without a warning that they are."""
    for child in _children.values():
        child.returncode = child.poll() or 0
