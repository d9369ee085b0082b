"""What a run shows and writes while it runs, and the seconds of its parts.

It shows a bar on a terminal, and lines elsewhere. Its log has a JSON line for everything that happens; it goes to
TensorBoard or a service as well if requested.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from cce.integrations import numbers_of, open_logger
from cce.text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cce.embeddings import ClusterEvent
    from cce.integrations import Logger
    from cce.run_folder import RunFolder

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


class MetricsLog:
    """The log in the run's folder. A resumed run drops what came after the checkpoint it resumes from."""

    def __init__(
        self,
        folder: RunFolder | None,
        *,
        step: int = 0,
        logger: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder  # of all processes only one writes
        self.damage: list[str] = []  # lines that could not be read, and are dropped
        self._logger: Logger | None = None
        if folder is None:
            return
        if logger is not None:
            self._logger = open_logger(logger, folder.path, step=step, config=config)
        kept, self.damage = folder.cut_log(step)
        for line in kept if step else ():
            if line["step"] == step:  # TensorBoard drops whole steps: the remaining lines of this one are written again
                self._send(line["kind"], step, line)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One line; nothing where another process writes."""
        if self.folder is not None:
            self.folder.append_log({"kind": kind, "step": step, **values})
            self._send(kind, step, values)

    def close(self) -> None:
        """Finish what others keep of it."""
        if self._logger is not None:
            self._logger.close()

    def _send(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self._logger is not None:
            self._logger.log(step, numbers_of(kind, values))


def event_values(event: ClusterEvent) -> dict[str, Any]:
    """What the log says about the clustering of a table."""
    entropies = {f"H{order}": value for order, value in enumerate(event.entropies_after, start=1)}
    values = {"num_ids": event.num_ids, "churn": event.churn, "dead_rows": event.dead_rows}
    return values | {"moved": event.moved, "seconds": event.total_seconds, **entropies}
