"""A run is trained by one process at a time, whoever began it: a lock that the system lets go of when its process ends.

On a shared file system this holds between machines where the system's `flock` does.
"""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def run_lock(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a run's folder; gives False, without `wait`, if another process has it."""
    if importlib.util.find_spec("fcntl") is None:  # Windows
        yield True
        return
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
