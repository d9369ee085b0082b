"""Ctrl-C as a wish: the batch is finished and the run saved. A second one is an order."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Wish:
    """Whether someone wishes to stop."""

    to_stop: bool = False


@contextmanager
def polite_interrupts() -> Iterator[Wish]:
    """Turn the first Ctrl-C or SIGTERM inside the block into a wish; a second one interrupts as usual."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish  # signals only ever reach the main thread
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        if wish.to_stop:
            raise KeyboardInterrupt
        wish.to_stop = True

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
