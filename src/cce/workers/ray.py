"""Tasks on the machines of a Ray cluster, which must share the folders' file system. The one file that imports Ray."""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from cce.checks import check_range
from cce.text import install_hint
from cce.workers.local import num_cores

Task = TypeVar("Task")
Result = TypeVar("Result")


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
