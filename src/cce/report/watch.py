"""A report that follows runs which are under way: read again, write again, until all are finished."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cce.report.reading import collect
from cce.report.writing import write_report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cce.report.reading import Collected
    from cce.report.sections import Section

PATIENCE = 120.0  # seconds; between two runs of a sweep there are a few
Told = tuple["Collected", list["Section"], list["Path"]]


def watch(
    paths: Sequence[Path],
    out: Path,
    *,
    seconds: float,
    figures: bool = True,
    tell: Callable[[Collected], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Told:
    """Write the page every so often; at the end, or at Ctrl-C, the whole report once more.

    It ends when nothing more can come, or when no run is under way and nothing has changed for `PATIENCE` seconds.
    """
    try:
        found, last, quiet = collect(paths, may_be_empty=True), "", 0.0
        while not (found.num_runs and (found.is_finished or quiet > PATIENCE)):
            now = _state(found)
            quiet = quiet + seconds if now == last and not found.num_running else 0.0
            if now != last and found.num_runs:
                write_report(found, out, figures=False, reload_seconds=seconds)
                if tell is not None:
                    tell(found)
            last = now
            sleep(seconds)
            found = collect(paths, may_be_empty=True)
    except KeyboardInterrupt:
        found = collect(paths)
    sections, written = write_report(found, out, figures=figures)
    return found, sections, written


def _state(found: Collected) -> str:
    """What a page depends on: nothing is written while it stays the same."""
    return repr((len(found.records), [(run.name, len(run.lines), run.is_running) for run in found.live]))
