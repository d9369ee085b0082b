"""What happens to tables between and after the steps of a run: clusterings, finalize, refits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from cce.text import format_bytes
from cce.training.finalizing import finalize_tables
from cce.training.monitoring import event_values
from cce.training.refitting import go_back_to_best, refit_tables

if TYPE_CHECKING:
    from cce.run_folder import RunFolder
    from cce.training.config import TrainConfig
    from cce.training.monitoring import Progress
    from cce.training.session import Session
    from cce.training.stopping import DivergenceGuard


class TableEvents(ABC):
    """The part of a trainer that changes tables as a whole. Each event is whole or did not happen."""

    session: Session
    config: TrainConfig
    folder: RunFolder
    guard: DivergenceGuard
    progress: Progress

    @abstractmethod
    def validate(self) -> None:
        """Score the validation rows."""

    @abstractmethod
    def save(self) -> None:
        """Write a checkpoint."""

    @abstractmethod
    def agree_to_go_on(self, losses: list[float]) -> None:
        """Let all ranks know whether any is to stop."""

    @abstractmethod
    def write(self, kind: str, **values: Any) -> None:
        """Write a line of the log."""

    def cluster_if_due(self) -> None:
        """Cluster tables if the schedule says so."""
        session = self.session
        if session.schedule is None or session.schedule.num_steps >= session.step:
            return
        with session.stopwatch("cluster"):
            if session.schedule.is_due(session.step):
                self.guard.check_weights()
            events = session.schedule.step()
        if events:
            session.parallel.refresh()
            for table, event in zip(session.schedule.clustered, events, strict=True):
                self.write("cluster", table=table, **event_values(event))
            self.progress.say(f"step {session.step:,}: clustered {len(events)} tables")

    def finalize(self) -> None:
        """Int8 rows become pointers: those of the best model."""
        session = self.session
        session.rows_steps = [session.step, session.stopping.best_step]
        self.save()
        with session.stopwatch("cluster"):
            go_back_to_best(session, self.folder)
            self.guard.check_weights()
            finalized = finalize_tables(session)
        best = f", from the rows of step {session.stopping.best_step:,}" if session.stopping.best_step >= 0 else ""
        self.write("finalize", tables=[table.name for table in finalized.tables])
        session.stopping.forget()
        session.curve.clear()
        before, after = format_bytes(finalized.before), format_bytes(finalized.nbytes)
        self._end_event(f"finalized {len(finalized.tables)} tables{best}: {before} of int8 rows, now {after}")

    def refit(self) -> None:
        """A round of refits of the best model."""
        session = self.session
        with session.stopwatch("refit"):
            if session.num_refits == 0:
                go_back_to_best(session, self.folder)
            for feature, values in refit_tables(session).items():
                self.write("refit", table=feature, **values)
        self._end_event(f"round {session.num_refits} of {self.config.refits} of refits")

    def _end_event(self, what: str) -> None:
        """Validate and save what is not a step of the optimizer as if it were one."""
        session = self.session
        session.step += 1
        self.progress.say(f"step {session.step:,}: {what}")
        self.agree_to_go_on([])
        if session.has_rows("validation"):
            self.validate()
        self.save()
