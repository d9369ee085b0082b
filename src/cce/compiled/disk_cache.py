"""Compiled code on disk, shared by all processes.

numba keeps compiled functions on disk and compiles one again when its own file changes, but not when a function that it
calls changes in another file. Loops that pass each other addresses must not run with an old partner, so the folder is
named by the text of all files of this package that have loops.

Each function has a folder of its own in there, in which one process at a time compiles: others wait, and load what it
has compiled. Without that, two processes that compile one function for two types at once would give both codes the same
file. A function is locked before those that it calls, which are never in a circle, so processes cannot wait for each
other. A marker is written for each code, so that it can be known to be there before it is loaded.
"""

import hashlib
import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from cce.files import lock_folder

PACKAGE = Path(__file__).resolve().parents[1]
PACKAGES = (
    "compiled",
    "indexing",
    "clustering",
    "kernels",
    "optim",
    "reclustering",
)  # with loops, or constants used in them

LONG = 2.0  # seconds of compilation after which it is reported
_compiling = threading.RLock()  # in the order of locks: this one, folders, numba's own


def _new_lock() -> None:
    global _compiling  # noqa: PLW0603
    _compiling = threading.RLock()


if hasattr(os, "register_at_fork"):  # the thread that holds it is not in the child
    os.register_at_fork(after_in_child=_new_lock)


def function_folder(function: Callable[..., Any]) -> Path | None:
    """The folder of a function's compiled code; None if there is nowhere to write."""
    root = _root()
    return None if root is None else root / f"{function.__module__}.{function.__qualname__}"


def share(loops: Any, folder: Path) -> None:
    """Let the loops be compiled, or loaded, by one process at a time."""
    compile_alone = loops.compile

    def compile_shared(signature: Any) -> Any:
        if signature in loops.signatures:
            return compile_alone(signature)
        with _compiling, lock_folder(folder, wait=True):
            compiled = marker(loops, signature)
            with nullcontext() if compiled.exists() else _reported():
                code = compile_alone(signature)
            compiled.touch()
            return code

    loops.compile = compile_shared
    loops.folder = folder


@contextmanager
def _reported() -> Iterator[None]:
    """Log a line, once, if the block takes long."""
    timer = threading.Timer(LONG, _report)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _report() -> None:
    logging.getLogger("cce").warning("cce: compiling loops, usually once per machine; this can take half a minute.")


def marker(loops: Any, signature: Any) -> Path:
    """The file that is there when the code for a signature is."""
    name = hashlib.sha256(f"{processor()} {signature}".encode()).hexdigest()[:32]
    return Path(loops.folder) / f"{name}.compiled"


@cache
def digest(package: Path) -> str:
    """The digest of the text of all files with loops."""
    text = hashlib.sha256()
    for name in PACKAGES:
        for path in sorted((package / name).rglob("*.py")):
            text.update(path.read_bytes())
    return text.hexdigest()


@cache
def _root() -> Path | None:
    """The folder of all code of this text: in `NUMBA_CACHE_DIR`, beside the files, or in the home folder."""
    config: Any = importlib.import_module("numba").config
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for parent in (config.CACHE_DIR, PACKAGE / "__pycache__", user):
        if parent:
            folder = Path(parent) / "cce-loops" / digest(PACKAGE)[:16]
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


@cache
def processor() -> str:
    """What code depends on beside its text: numba itself, and the processor."""
    numba, processor = importlib.import_module("numba"), importlib.import_module("llvmlite.binding")
    cpu = numba.config.CPU_NAME or processor.get_host_cpu_name()
    features = numba.config.CPU_FEATURES  # "" is what a generic processor has
    if features is None:
        features = processor.get_host_cpu_features().flatten()
    return f"{numba.__version__} {cpu} {features}"
