"""Who does the work: this process, several on this machine, or a Ray cluster. A list of tasks in, results out.

Results come in the order of the tasks. Machines of a Ray cluster must share the folders' file system.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from cce.checks import check_range
from cce.text import install_hint

Task = TypeVar("Task")
Result = TypeVar("Result")


def open_engine(name: str = "local", jobs: int | None = None) -> LocalEngine | RayEngine:
    """`local`, `ray` (a Ray of this machine) or `ray://host:port` (a cluster that is there already)."""
    check_engine(name)
    return LocalEngine(jobs) if name == "local" else RayEngine(None if name == "ray" else name, jobs)


def check_engine(name: str) -> None:
    """Reject the name of an engine that there is not."""
    if name not in ("local", "ray") and not name.startswith("ray://"):
        raise ValueError(f"engine must be local, ray or ray://host:port, got {name!r}.")


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalEngine:
    """`map(function, tasks)` on `jobs` processes of this machine; in this process if there is one job or one task.

    Ctrl-C reaches the function as KeyboardInterrupt, wherever it runs, and no further task is begun. A second one ends
    the processes. They end with this process in any case.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs if jobs is not None else num_cores()
        check_range("jobs", self.jobs, 1, 2**16)
        self._pool: ProcessPoolExecutor | None = None
        self._others: list[BaseProcess] = []

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is None:
            return
        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self._send(signal.SIGINT)
            self._pool.shutdown(cancel_futures=True)
        except KeyboardInterrupt:
            self._send(signal.SIGKILL)
            raise
        finally:
            self._pool = None

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The function's result for each task, in order."""
        if min(self.jobs, len(tasks)) <= 1:
            yield from map(function, tasks)
            return
        if self._pool is None:
            self._others = multiprocessing.active_children()
            # a fork would copy locks that other threads hold
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin_work)
        with _held_back_interrupts():
            results = self._pool.map(partial(_work, function), tasks)
        yield from results

    def _send(self, number: int) -> None:
        """Send the workers a signal: they are not in the terminal's group, or Ctrl-C would interrupt them twice."""
        for child in multiprocessing.active_children():
            if child not in self._others and child.pid is not None:
                os.kill(child.pid, number)


@contextmanager
def _held_back_interrupts() -> Iterator[None]:
    """Processes that are begun here do not see Ctrl-C before they are ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class RayEngine:
    """`map(function, tasks)` on a Ray cluster; without an address, on a Ray of this machine that ends with the work."""

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ValueError(f"engine ray needs Ray: {install_hint('ray')}.")
        if jobs is not None:
            check_range("jobs", jobs, 1, 2**16)
        import ray

        self._ray: Any = ray
        self._own = not ray.is_initialized()
        if self._own and address is not None:
            ray.init(address=address, log_to_driver=False)
        elif self._own:
            count = jobs if jobs is not None else num_cores()
            ray.init(num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level="error")
        self.jobs = jobs if jobs is not None else int(ray.cluster_resources().get("CPU", 1))

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._ray.shutdown()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The function's result for each task, in order; twice as many tasks as jobs are under way at most."""
        remote = self._ray.remote(max_retries=2)(function)
        waiting = iter(tasks)
        under_way: deque[Any] = deque(remote.remote(task) for task in islice(waiting, 2 * self.jobs))
        while under_way:
            result = self._get(under_way.popleft())
            under_way.extend(remote.remote(task) for task in islice(waiting, 1))
            yield result

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None  # the error of the function itself, as a local engine would raise it


# -- in the other processes --------------------------------------------------------------------------------------------

_stopped = threading.Event()  # this process was asked to stop


def _begin_work() -> None:
    """Leave Ctrl-C to the process that began this one, and end when it ends."""
    os.setpgrp()
    signal.signal(signal.SIGINT, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(function: Callable[[Task], Result], task: Task) -> Result:
    """One task, which Ctrl-C interrupts; after it no other is begun."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if _stopped.is_set():
            raise KeyboardInterrupt
        return function(task)
    except KeyboardInterrupt:
        _stopped.set()
        raise
    finally:
        signal.signal(signal.SIGINT, _stop)


def _stop(*_: object) -> None:
    """Handle a stop request between two tasks."""
    _stopped.set()
