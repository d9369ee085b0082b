"""Work spread over ordinary Python threads: compiled loops release the GIL.

numba has its own thread pool, but that aborts when two Python threads enter it at once, and does not survive a
fork.
"""

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch

_THREAD_NAME = "cce-loops"

_own = threading.local()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def parallel_for(task: Callable[[int], None], num_tasks: int) -> None:
    """Run `task(0) … task(num_tasks - 1)` on `torch.get_num_threads()` threads; no two may write to the same address.

    The caller is one of the threads.
    """
    num_threads = min(torch.get_num_threads(), num_tasks)
    is_nested = threading.current_thread().name.startswith(_THREAD_NAME)  # waiting for its own pool might never end
    if num_threads <= 1 or is_nested:
        for index in range(num_tasks):
            task(index)
        return
    indices = itertools.count()

    def work() -> None:
        while (index := next(indices)) < num_tasks:
            task(index)

    others: list[Future[None]] = []
    try:
        others.extend(_pool(num_threads - 1).submit(work) for _ in range(num_threads - 1))
        work()
    finally:
        _finish(others)


def _finish(others: list[Future[None]]) -> None:
    """Wait for all, even if interrupted meanwhile: they write to memory that the caller gives back afterwards."""
    interrupt: KeyboardInterrupt | None = None
    running = [other for other in others if not other.cancel()]
    while not all(other.done() for other in running):
        try:
            wait(running)
        except KeyboardInterrupt as raised:
            interrupt = raised
    if interrupt is not None:
        raise interrupt
    for other in running:
        other.result()


def scratch(name: str, size: int, dtype: Any) -> np.ndarray[Any, Any]:
    """An array of at least `size` values that belongs to this thread until it asks for the same `name` again.

    A name has one type: comparing types would take longer than all the rest.
    """
    held: dict[str, np.ndarray[Any, Any]] = _own.__dict__
    array = held.get(name)
    if array is None or array.size < size:
        array = held[name] = np.empty(size, dtype)
    return array


def _pool(num_threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), num_threads)  # a forked child inherits the dictionary but not the threads
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(num_threads, thread_name_prefix=_THREAD_NAME)
    return _pools[key]
