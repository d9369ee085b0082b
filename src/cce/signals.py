"""Ctrl-C and SIGTERM: stop requests that are handled at a safe point, or deferred until work is complete (no torch)."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class StopRequest:
    """Whether someone asked this process to stop; `is_interrupt` if it was by Ctrl-C."""

    is_set: bool = False
    is_interrupt: bool = False

    def clear(self) -> None:
        """Forget the request, which has been met."""
        self.is_set = self.is_interrupt = False


@contextmanager
def graceful_stop() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM inside the block into a request; a second one interrupts as usual."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # signals only ever reach the main thread
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        if request.is_set:
            raise KeyboardInterrupt
        request.is_set, request.is_interrupt = True, number == signal.SIGINT

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block is done, so that what it changes is changed whole or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals only ever interrupt the main thread
        return
    held: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived, frame in held:
            handlers[signal.Signals(arrived)](arrived, frame)
