"""A line on stderr when numba compiles for long, which happens once per machine and takes up to half a minute.

It goes through `logging` (logger "cce"), so it is no warning that a filter could turn into an error, and it can be
silenced.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from functools import cache
from typing import Any

LONG = 2.0  # seconds of compilation after which it is reported


class CompilationNotice:
    """Adds up the compilation time of this package's loops; reports once when it passes `LONG`.

    numba compiles under one lock, so starts and ends of nested compilations arrive in order.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.started = 0.0
        self.seconds = 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """Begin a compilation, perhaps inside of another."""
        if _is_ours(event):
            self.depth += 1
            if self.depth == 1 and self.seconds < LONG:
                self.started = time.perf_counter()
                self.timer = threading.Timer(LONG - self.seconds, _report)
                self.timer.daemon = True
                self.timer.start()

    def on_end(self, event: Any) -> None:
        """End it."""
        if _is_ours(event):
            self.depth -= 1
            if self.depth == 0 and self.timer is not None:
                self.timer.cancel()
                self.timer = None
                self.seconds += time.perf_counter() - self.started


def _report() -> None:
    logging.getLogger("cce").warning("cce: compiling loops, usually once per machine; this can take half a minute.")


def _is_ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith("cce.")


@cache
def listen() -> None:
    """Report long compilations in this process. Loading compiled loops from disk is not a compilation."""
    try:
        event: Any = importlib.import_module("numba.core.event")
    except ImportError:  # the module is not part of numba's stable interface: without it there is no line
        return

    class Listener(CompilationNotice, event.Listener):  # type: ignore[misc]
        """What numba accepts as a listener."""

    event.register("numba:compile", Listener())
