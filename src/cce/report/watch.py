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

Told = tuple["Collected", list["Section"], list["Path"]]


def watch(
    paths: Sequence[Path],
    out: Path,
    *,
    seconds: float,
    tell: Callable[[Collected], None] = lambda found: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Told:
    """Write the page every so often while runs are under way; at the end, or at Ctrl-C, the whole report once more."""
    try:
        while True:
            found = collect(paths)
            if found.is_finished:
                break
            write_report(found, out, figures=False, reload_seconds=seconds)
            tell(found)
            sleep(seconds)
    except KeyboardInterrupt:
        found = collect(paths)
    sections, written = write_report(found, out)
    return found, sections, written
