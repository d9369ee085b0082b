"""Who does the work: this process, several on this machine, or a Ray cluster. Results come in the order of the
tasks.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from cce.checks import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine:
    """`map(function, tasks)` on `jobs` processes of this machine; in this process if there is one job or one task."""

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs if jobs is not None else len(os.sched_getaffinity(0))
        check_range("jobs", self.jobs, 1, 2**16)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The function's result for each task, in order."""
        if min(self.jobs, len(tasks)) <= 1:
            yield from map(function, tasks)
            return
        if self._pool is None:
            # a fork would copy locks that other threads hold
            self._pool = ProcessPoolExecutor(self.jobs, mp_context=multiprocessing.get_context("spawn"))
        yield from self._pool.map(function, tasks)


def open_engine(name: str = "local", jobs: int | None = None) -> Any:
    """`local`, `ray` (a Ray of this machine) or `ray://host:port` (a cluster that is there already)."""
    if name == "local":
        return Engine(jobs)
    if name == "ray" or name.startswith("ray://"):
        from cce.data.ray_engine import RayEngine

        return RayEngine(None if name == "ray" else name, jobs)
    raise ValueError(f"engine must be local, ray or ray://host:port, got {name!r}.")
