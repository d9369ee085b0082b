"""The one door to numba: compiled loops where it is installed, and a plain `available` where it is not.

Compiled functions release the GIL and run in ordinary Python threads (`parallel_for`), not in numba's own thread
pool: that pool aborts when two Python threads enter it at once and does not survive a fork.

numba caches compiled functions on disk and compiles one again when its own file changes, but not when a function that
it calls changes in another file: after such an edit, delete the `.nbi` files in `__pycache__`.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")

available: bool = importlib.util.find_spec("numba") is not None  # numba is the optional extra "fast"

_THREAD_NAME = "cce-loops"

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def compile_loops(function: Function) -> Function:
    """Compile `function` on first use, cached on disk and without the GIL; without numba, return it as it is."""
    if not available:
        return function
    import numba

    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        return cast("Function", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder that can be written to: every process compiles anew
        return cast("Function", numba.njit(**options)(function))


def parallel_for(task: Callable[[int], None], num_tasks: int) -> None:
    """Run `task(0) … task(num_tasks - 1)` on `torch.get_num_threads()` threads; no two may write to the same place."""
    num_threads = min(torch.get_num_threads(), num_tasks)
    is_nested = threading.current_thread().name.startswith(_THREAD_NAME)  # waiting for its own pool might never end
    if num_threads <= 1 or is_nested:
        for index in range(num_tasks):
            task(index)
        return
    for _ in _pool(num_threads).map(task, range(num_tasks)):
        pass


def _pool(num_threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), num_threads)  # a forked child inherits the dictionary but not the threads
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(num_threads, thread_name_prefix=_THREAD_NAME)
    return _pools[key]
