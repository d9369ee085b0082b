"""The trainer: runs the phases of a run, with its folder, its log and its checkpoints around them."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from cce.data import MANIFEST, PreparedData, unseen_lines
from cce.distributed import broadcast, current_ranks, sum_over_ranks
from cce.evaluation import format_scores
from cce.files import write_atomic
from cce.models import model_note
from cce.records import RunRecord
from cce.run_folder import RunFolder
from cce.signals import StopRequest, graceful_stop
from cce.training.checkpoint import Checkpoint, explained_misfits
from cce.training.config import MAY_BE_CHOSEN_AGAIN, MAY_CHANGE, MAY_MOVE, TrainConfig, make_config, to_toml
from cce.training.monitoring import MetricsLog, Progress, peaks_line
from cce.training.outcome import best_model, keep_record
from cce.training.phases import FinalizePhase, Phase, TrainPhase
from cce.training.refit_phase import RefitPhase
from cce.training.resolving import resolve
from cce.training.saving import read_run_options, read_saved, save_run
from cce.training.session import Session, counters_line, row_counters, shares_without_row
from cce.training.stopping import DivergenceGuard, explained_lost_peer, how_to_resume
from cce.training.stream_phase import StreamPhase


class Trainer:
    """Trains a model on a prepared data set, as `config` says, and keeps its checkpoints and its log in `out`.

    `out` is locked until the run ends or `close` is called; `lock=False` says that the caller holds the lock.
    given, config: the options as they were given, and resolved.
    """

    def __init__(self, config: TrainConfig, out: Path | str, *, progress: bool = False, lock: bool = True) -> None:
        with self._alone(RunFolder(Path(out)), lock=lock):
            if self.ranks.is_main and self.folder.is_begun:
                raise FileExistsError(
                    f"{out} holds a run: give another folder, or resume with {how_to_resume(self.folder)}."
                )
            if (self.folder.path / MANIFEST).exists():
                raise FileExistsError(f"out must be the folder of a run, got {str(out)!r}, which holds a data set.")
            self._open(config)
            self._begin(None, progress=progress)
            self._write_config()
            if note := model_note(self.config.model, self.data.schema, self.config.model_options):
                self.progress.say(f"note: {note}")

    @classmethod
    def resume(
        cls,
        out: Path | str,
        *,
        progress: bool = False,
        lock: bool = True,
        rows: Checkpoint | None = None,
        is_logged: bool = True,
        **changes: Any,
    ) -> Self:
        """Go on with the run in `out`, from its newest whole checkpoint.

        lock: False if the caller holds the lock of the folder.
        rows: the checkpoint of int8 rows to go on from instead, to finalize them in another size.
        is_logged: whether the log of the run goes on.
        changes: options that may change, such as `epochs`; with `rows`, those of the size; a model of your own again.
        """
        self = cls.__new__(cls)
        with self._alone(RunFolder(Path(out)), lock=lock):
            may = MAY_CHANGE if rows is None else MAY_BE_CHOSEN_AGAIN
            values = None
            if self.ranks.is_main:
                values = read_run_options(self.folder, changes, may=(*may, *MAY_MOVE))
            self._open(make_config(broadcast(values, self.ranks)))
            saved: Checkpoint | None = rows
            damage: list[str] = []
            if rows is None:
                saved, damage = read_saved(self.given, self.config, self.data, self.folder, self.ranks)
            self._begin(saved, progress=progress, is_logged=is_logged)
            if changes and rows is None:
                self._write_config()
        for line in damage:
            self.progress.say(f"{line} The one before it is used.")
        for line in self.log.damage:
            self.progress.say(f"{line} It is dropped.")
        return self

    @property
    def model(self) -> nn.Module:
        """The model as it is now; after `run`, as it was at the best validation."""
        return self._model

    def run(self, *, name: str = "", series: str = "") -> RunRecord:
        """Run all phases. Ctrl-C finishes the batch, saves, and raises KeyboardInterrupt with how to resume.

        In refits that are shown, it ends these instead. name, series: of the record, where the run is one of many.
        """
        with graceful_stop() as request, closing(self), explained_lost_peer(self.folder, self.ranks):
            self.stop_request = request  # one that comes too late is still there after the run
            for phase in self.phases:
                if not phase.is_done:
                    with self.session.memory.phase(phase.name):
                        phase.run()
            self._write_config()  # of a run whose size was chosen again
            return self._finish(name, series)

    # -- what phases use -----------------------------------------------------------------------------------------------

    @property
    def can_end_refits(self) -> bool:
        """Whether Ctrl-C ends refits, rather than the run: if somebody was told so."""
        return self.progress.shown and self.ranks.world_size == 1

    def agree_to_go_on(self, loss: float = 0.0) -> None:
        """Let all ranks know whether any is to stop, and raise on all if the loss of any is not finite."""
        signals = torch.tensor([loss, float(self.stop_request.is_set)], dtype=torch.float64)
        total, is_to_stop = sum_over_ranks(signals, self.ranks).tolist()
        self.is_to_stop = bool(is_to_stop)
        self.guard.check_loss(total)

    def leave_if_asked(self) -> None:
        """Save and leave if anyone was asked to stop before the step; all ranks leave together."""
        if self.is_to_stop and not all(phase.is_done for phase in self.phases):
            self.save()
            raise KeyboardInterrupt(f"saved after step {self.session.step:,}; resume with {how_to_resume(self.folder)}")

    def validate(self) -> None:
        """Score the validation rows, and note whether they were never better."""
        session = self.session
        self.guard.check_weights()
        with session.stopwatch("validate"), self.guard.explained_logits():
            scores = session.score(session.model, "validation")
        leading = session.stopping.metric
        is_best = session.stopping.add(scores[leading.name], session.step)
        session.curve.append({"step": session.step, "epoch": session.epoch, **scores})
        self.write("validation", **scores)
        self.progress.update(0, validation=leading.format(scores[leading.name]))
        note = ", the best so far" if is_best else ""
        if ids := row_counters(session.model):
            self.write("ids", ids=ids)
            note += f"; {counters_line(ids)}"
        self.progress.say(f"step {session.step:,}: validation {format_scores(scores)}{note}")

    def end_event(self, what: str) -> None:
        """Validate and save what is not a step of the optimizer as if it were one."""
        session = self.session
        session.step += 1
        self.progress.say(f"step {session.step:,}: {what}")
        self.agree_to_go_on()
        if session.has_rows("validation"):
            self.validate()
        self.save()

    def save(self) -> None:
        """Write a checkpoint of what is finite."""
        with self.session.stopwatch("save"):
            self.guard.check_weights()
            save_run(self)

    def write(self, kind: str, **values: Any) -> None:
        self.log.write(kind, self.session.step, **values)

    # -- beginning and end ---------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, folder: RunFolder, *, lock: bool) -> Iterator[None]:
        """Hold the lock of the run's folder: until the run is closed, or only here if the block fails."""
        self.folder, self.ranks = folder, current_ranks()
        with ExitStack() as stack:
            if lock and self.ranks.is_main:
                stack.enter_context(folder.lock())
            yield
            self._lock = stack.pop_all()

    def _open(self, given: TrainConfig) -> None:
        if given.threads is not None:
            torch.set_num_threads(given.threads)
        self.data = PreparedData.open(given.data, verify=given.verify)
        self.data.verify_first()  # damage of what is validated or tested on would be found after hours
        self.given, self.config = given, resolve(given, self.data)

    def _begin(self, saved: Checkpoint | None, *, progress: bool, is_logged: bool = True) -> None:
        """Make the session and the phases, as they were saved if they were."""
        if saved is None:
            self.session = Session(self.config, self.data, ranks=self.ranks)
            self._make_phases()
        else:
            with explained_misfits(saved.path):
                self.session = Session(self.config, self.data, ranks=self.ranks, weights=saved.model)
                self._make_phases()
                self.session.load_state_dict(saved.state)
                for phase in self.phases:
                    if phase is self.training or self.training.is_done:  # or there are more epochs now
                        phase.load_state_dict(saved.state["phases"][phase.name])
        session = self.session
        self._model = session.model
        self.guard = DivergenceGuard(session, self.folder)
        self.stop_request, self.is_to_stop = StopRequest(), False
        log_to = self.folder if self.ranks.is_main and is_logged else None
        self.log = MetricsLog(log_to, step=session.step, logger=self.config.logger, config=asdict(self.config))
        self.progress = Progress(shown=progress and self.ranks.is_main)
        if session.step == 0 and self.ranks.is_main:
            self._report()

    def _make_phases(self) -> None:
        self.training = StreamPhase(self) if self.config.stream else TrainPhase(self)
        self.finalizing, self.refitting = FinalizePhase(self), RefitPhase(self)
        self.phases: tuple[Phase, ...] = (self.training, self.finalizing, self.refitting)

    def _report(self) -> None:
        """Say what was decided, and how much of each split the tables know nothing about."""
        decided = self.config.decided(self.given)
        self.write("config", **asdict(self.config))
        self.progress.say("options chosen: " + ", ".join(f"{name} {value}" for name, value in decided.items()))
        if self.config.stream:
            return
        shares = shares_without_row(self.session.model, self.data)
        self.write("unseen", **shares)
        for line in unseen_lines(shares, "without a trained row"):
            self.progress.say(line)

    def _write_config(self) -> None:
        if self.ranks.is_main:
            write_atomic(self.folder.config, to_toml(self.given))

    def _finish(self, name: str, series: str) -> RunRecord:
        """Save, score the best model on the test rows, and keep the record."""
        session = self.session
        self.save()
        self._model, damage = best_model(session, self.folder)
        if damage:
            self.progress.say(f"{damage} The model of step {session.step:,} is kept, in place of the best one.")
        self.write("memory", **session.memory.peaks)
        self.progress.say(peaks_line(session.memory.peaks))
        scores = self.training.scores
        if self.config.test and session.has_rows("test"):
            with session.stopwatch("test"):
                scores = session.score(self._model, "test")
            self.write("test", **scores, best_step=session.step if damage else session.stopping.best_step)
        return keep_record(self, scores, name=name, series=series)

    def close(self) -> None:
        """Finish what is shown and logged, leave the other processes, and unlock the folder."""
        self.progress.close()
        self.log.close()
        self.session.parallel.close()
        self._lock.close()
