"""What a run shows and writes while it runs, and the seconds of its parts.

It shows a bar on a terminal, and lines elsewhere. Its log has a JSON line for everything that happens; it goes to
TensorBoard or a service as well if requested.
"""

import io
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cce.integrations import Logger, finite_values, open_logger
from cce.run_folder import RunFolder
from cce.text import format_bytes

SECONDS = 10.0  # between two lines
SAMPLE_SECONDS = 0.02
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Progress:
    """Rows done, of all, in a part of a run; with the remaining time, the loss, the last validation and the memory."""

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown
        self._notes: dict[str, str] = {}
        self._bar: tqdm[Any] = tqdm(disable=True)

    def start(self, total_rows: int, name: str, *, first_row: int = 0) -> None:
        self.close()
        how: dict[str, Any] = {"total": total_rows, "initial": first_row, "desc": name, "leave": False}
        how |= {"unit": "row", "unit_scale": True, "disable": not self.shown}
        self._bar = tqdm(mininterval=0.5, **how) if sys.stderr.isatty() else Lines(mininterval=SECONDS, **how)

    def update(self, rows: int, **notes: str) -> None:
        """Advance by a number of rows; `notes` are shown beside them."""
        self._notes |= notes
        self._bar.set_postfix_str(", ".join(f"{k} {v}" for k, v in self._notes.items()), refresh=False)
        self._bar.update(rows)

    def say(self, text: str) -> None:
        if self.shown:
            tqdm.write(text, file=sys.stderr)

    def close(self) -> None:
        self._bar.close()


class Lines(tqdm):  # type: ignore[misc]
    """A bar where there is no terminal: a line now and then."""

    def __init__(self, **options: Any) -> None:
        form = "{desc}: {n_fmt} of {total_fmt} rows, {rate_fmt}, {remaining} left{postfix}"
        super().__init__(file=io.StringIO(), bar_format=form, delay=SECONDS, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        del pos
        if msg is None:  # or it would be cleared
            tqdm.write(str(self), file=sys.stderr)


def resident_nbytes() -> int:
    """Resident memory of this process without pages of files, such as those of code and of mapped data; 0 where the
    system does not report it.
    """
    try:
        _, resident, of_files, *_ = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(of_files)) * PAGE


class PeakMemory:
    """The most resident memory in each part of a run, above what there was when this was made; sampled in a thread.

    Memory that was freed before may be used again without being seen.
    """

    def __init__(self) -> None:
        self.baseline = resident_nbytes()
        self.peaks: dict[str, int] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        ended = threading.Event()
        self._sample(name)
        thread = threading.Thread(target=self._watch, args=(name, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._sample(name)

    def merge(self, peaks: Mapping[str, int]) -> None:
        """Take over the peaks of the process that a run was begun in."""
        for name, nbytes in peaks.items():
            self.peaks[name] = max(nbytes, self.peaks.get(name, 0))

    def _watch(self, name: str, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_SECONDS):
            self._sample(name)

    def _sample(self, name: str) -> None:
        self.merge({name: max(0, resident_nbytes() - self.baseline)})


def peaks_line(peaks: Mapping[str, int]) -> str:
    found = ", ".join(f"{phase} {format_bytes(nbytes)}" for phase, nbytes in peaks.items())
    return f"peak memory above that before tables were made: {found}"


class Stopwatch:
    """Adds up the seconds of each part of a run: `with stopwatch("train"): …`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started


class MetricsLog:
    """The log in the run's folder. A resumed run drops what came after the checkpoint it resumes from."""

    def __init__(
        self, folder: RunFolder | None, *, step: int = 0, logger: str = "", config: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder  # of all processes only one writes
        self.damage: list[str] = []  # lines that could not be read, and are dropped
        self._logger: Logger | None = None
        if folder is None:
            return
        if logger:
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
        if self._logger is not None:
            self._logger.close()

    def _send(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self._logger is not None and kind != "config":
            self._logger.log(step, finite_values(kind, values))
