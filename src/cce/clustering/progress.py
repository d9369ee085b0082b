"""Long work in plain torch, reported: a warning with the expected time, then a progress bar on stderr."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from cce import compiled

MEASURED = 0.25  # seconds of work from which the rest is estimated
LONG = 10.0  # seconds of work that are worth a warning
MANY = 1 << 29  # pairs below which work is short; an estimate that says otherwise was made on a busy machine
BAR = "{desc}: {percentage:3.0f}% |{bar:20}| {elapsed} of at most {remaining} more"


class Progress:
    """How many of `num_pairs` point–centroid pairs have been searched.

    Only plain torch reports its work here; other backends are fast enough. The estimate is an upper bound: k-means may
    converge early, and searches fewer points as it settles. Several threads may share one object.
    """

    def __init__(self, work: str, num_pairs: int) -> None:
        self.work = work
        self.num_pairs = num_pairs
        self.num_done = 0
        self._started: float | None = None
        self._is_estimated = False
        self._bar: Any = None
        self._lock = threading.Lock()

    def add(self, num_pairs: int, seconds: float = 0.0) -> None:
        """Report pairs that took `seconds` to search, or that needed no search."""
        with self._lock:
            self.num_done += num_pairs
            now = time.perf_counter()
            if self._started is None:
                self._started = now - seconds
            if self._bar is not None:
                self._bar.update(num_pairs)
            elif not self._is_estimated and now - self._started >= MEASURED:
                self._is_estimated = True
                self._announce((now - self._started) * self.num_pairs / self.num_done)

    def _announce(self, seconds: float) -> None:
        if seconds < LONG or self.num_pairs < MANY:
            return
        reason = compiled.why_plain or 'backend "torch"'
        warnings.warn(f"{self.work} in plain torch may take up to {_readable(seconds)} ({reason}).", stacklevel=2)
        self._bar = tqdm(
            total=self.num_pairs,
            initial=self.num_done,
            desc=self.work,
            bar_format=BAR,
            leave=False,
            mininterval=0.5 if sys.stderr.isatty() else 10,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def reporting(progress: Progress | None, work: str, num_pairs: int) -> AbstractContextManager[Progress]:
    """Return the given progress, which its owner ends, or else a new one."""
    return Progress(work, num_pairs) if progress is None else nullcontext(progress)


def _readable(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
