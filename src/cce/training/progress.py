"""What a run shows while it runs, a bar on a terminal and lines elsewhere; and the seconds of its parts."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from cce.text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 10.0  # between two lines


class Progress:
    """Rows trained, of all; with the loss, the last validation, the next clustering and the memory in use."""

    def __init__(self, total_rows: int, *, shown: bool, first_row: int = 0, name: str = "training") -> None:
        self.shown = shown
        self.rows, self.total_rows = first_row, total_rows
        self._first, self._started, self._told = first_row, time.perf_counter(), time.perf_counter()
        self._notes: dict[str, str] = {}
        on_terminal = shown and sys.stderr.isatty()
        self._bar = (
            tqdm(
                total=total_rows,
                initial=first_row,
                desc=name,
                unit="row",
                unit_scale=True,
                leave=False,
                mininterval=0.5,
            )
            if on_terminal
            else None
        )

    def update(self, rows: int, **notes: str) -> None:
        """Advance by a number of rows; `notes` are shown beside them."""
        self.rows += rows
        self._notes |= notes
        if self._bar is not None:
            self._bar.update(rows)
            if notes:
                self._bar.set_postfix_str(", ".join(f"{k} {v}" for k, v in self._notes.items()), refresh=False)
        elif self.shown and time.perf_counter() - self._told > SECONDS:
            self._told = time.perf_counter()
            self.say(self._line())

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.shown:
            tqdm.write(text, file=sys.stderr)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def _line(self) -> str:
        speed = (self.rows - self._first) / max(time.perf_counter() - self._started, 1e-9)
        notes = "".join(f", {name} {value}" for name, value in self._notes.items())
        return f"{self.rows:,} of {self.total_rows:,} rows, {speed:,.0f} rows/s{notes}"


def memory_text() -> str:
    """Resident memory of this process, where the system reports it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    resident = next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
    return format_bytes(resident * 1024) if resident else "unknown"


class Stopwatch:
    """Adds up the seconds of each part of a run: `with stopwatch("train"): …`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started
