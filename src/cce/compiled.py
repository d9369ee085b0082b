"""The one door to numba: compiled loops where it is installed, and a plain `available` where it is not.

Compiled functions release the GIL and run in ordinary Python threads (`parallel_for`), not in numba's own thread
pool: that pool aborts when two Python threads enter it at once and does not survive a fork.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import numba
except ImportError:  # numba is the optional extra "fast"
    numba = None

available: bool = numba is not None

Function = TypeVar("Function", bound="Callable[..., Any]")

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def compile_loops(function: Function) -> Function:
    """Compile `function` on first use, cached on disk and without the GIL; without numba, return it as it is."""
    if numba is None:
        return function
    compiled: Function = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")(function)
    return compiled


def parallel_for(task: Callable[[int], None], num_tasks: int) -> None:
    """Run `task(0) … task(num_tasks - 1)` on `torch.get_num_threads()` threads; tasks must not share what they write."""
    num_threads = min(torch.get_num_threads(), num_tasks)
    if num_threads <= 1:
        for index in range(num_tasks):
            task(index)
        return
    for _ in _pool(num_threads).map(task, range(num_tasks)):
        pass


def _pool(num_threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), num_threads)  # a forked child inherits the dictionary but not the threads
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(num_threads, thread_name_prefix="cce")
    return _pools[key]
