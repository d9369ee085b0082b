"""The progress of a sweep, polled from the folders of its runs, whichever process trains them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.records import RunRecord
    from cce_lab.sweeps.running import Sweep
    from cce_lab.sweeps.runs import Run

    Report = Callable[[RunRecord, str], None]  # of a finished run, and how many of how many are

LOOK_EVERY = 2.0  # seconds
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} epochs [{elapsed}, {remaining} left]"
NO_EPOCH = 0.1  # what a run without training counts for


class Watch:
    """Show the progress of the sweep, gather its records, and report each run that finishes."""

    def __init__(self, sweep: Sweep, *, shown: bool, report: Report | None = None) -> None:
        self.sweep = sweep
        self.report = report
        self._left: set[str] | None = None  # names, when it was last looked at
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)
        total = sum(planned(run) for run in sweep.chosen)
        self._bar = tqdm(total=total, unit="epoch", disable=None if shown else True, bar_format=BAR)

    def __enter__(self) -> Watch:
        self._bar.initial = self._look()  # the rate is that of what is done from now on
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        self._bar.close()

    def _look_again(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self._look()

    def _look(self) -> float:
        left = {run.name for run in self.sweep.left()}
        runs = self.sweep.chosen
        self._bar.n = sum(self._share(run) if run.name in left else planned(run) for run in runs)
        self._bar.set_description_str(f"{len(runs) - len(left)} of {len(runs)} runs")
        self.sweep.gather()
        self._report(left)
        return float(self._bar.n)

    def _report(self, left: set[str]) -> None:
        """Report what has finished since the last look."""
        before, self._left = self._left, left
        finished = [run for run in self.sweep.chosen if before and run.name in before - left]
        total = len(self.sweep.chosen)
        for done, run in enumerate(finished, start=total - len(left) - len(finished) + 1):
            if self.report is not None:
                self.report(self.sweep.folder(run).read_record(), f"{done} of {total}")

    def _share(self, run: Run) -> float:
        """Epochs of an unfinished run so far."""
        lines, _ = self.sweep.folder(run).scan_log()
        num_validations = sum(line["kind"] == "validation" for line in lines)
        return float(min(num_validations / run.config.validations_per_epoch, planned(run)))


def planned(run: Run) -> float:
    """Epochs that a run takes at most."""
    return max(float(run.config.epochs), NO_EPOCH)
