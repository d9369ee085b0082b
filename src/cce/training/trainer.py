"""The training loop: batches in, a trained model and a record out; stopped at any step and resumed to the bit."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch.nn import functional

from cce.data import MANIFEST, PreparedData, unseen_lines
from cce.distributed import broadcast, current_ranks, sum_over_ranks
from cce.evaluation import format_scores
from cce.files import write_atomic
from cce.models import model_note
from cce.run_folder import RunFolder
from cce.signals import StopRequest, graceful_stop
from cce.training.building import shares_without_row, with_defaults
from cce.training.loading import read_run_options
from cce.training.monitoring import MetricsLog, Progress, memory_text
from cce.training.options import make_config, to_toml
from cce.training.outcome import best_model, keep_record
from cce.training.session import Session
from cce.training.stopping import DivergenceGuard, explained_lost_peer, how_to_resume
from cce.training.table_events import TableEvents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from cce.records import RunRecord
    from cce.schema import Batch
    from cce.training.config import TrainConfig
    from cce.training.scoring import Scores


class Trainer(TableEvents):
    """Trains a model on a prepared data set, as `config` says, and keeps its checkpoints and its log in `out`.

    `out` is locked until the run ends or `close` is called; `lock=False` says that the caller holds the lock.
    A clustering that is due comes right before the next batch, so that what is validated and saved is what was trained.
    """

    def __init__(
        self,
        config: TrainConfig,
        out: Path | str,
        *,
        progress: bool = False,
        lock: bool = True,
    ) -> None:
        with self._alone(RunFolder(Path(out)), lock=lock):
            if self.ranks.is_main and self.folder.is_begun:
                raise FileExistsError(
                    f"{out} holds a run: give another folder, or resume with {how_to_resume(self.folder)}."
                )
            if (self.folder.path / MANIFEST).exists():
                raise FileExistsError(f"out must be the folder of a run, got {str(out)!r}, which holds a data set.")
            self._open(config)
            session = Session(self.config, self.data, ranks=self.ranks)
            self._begin(session, progress=progress)
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
        trust_model: bool = False,
        **changes: Any,
    ) -> Self:
        """Go on with the run in `out`, from its newest whole checkpoint.

        lock: False if the caller holds the lock of the folder.
        trust_model: run the code of a model that is not of this package, even if `model` does not name it again.
        changes: options that may change, such as `epochs`.
        """
        self = cls.__new__(cls)
        with self._alone(RunFolder(Path(out)), lock=lock):
            values = read_run_options(self.folder, changes, trust_model=trust_model) if self.ranks.is_main else None
            self._open(make_config(broadcast(values, self.ranks)))
            session, damage = Session.restore(self.config, self.data, self.folder, ranks=self.ranks)
            self._begin(session, progress=progress)
            if changes:
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

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, *, name: str = "", series: str = "") -> RunRecord:
        """Train to the end. Ctrl-C finishes the batch, saves, and raises KeyboardInterrupt with how to resume.

        name, series: of the record, where the run is one of many.
        """
        session = self.session
        with graceful_stop() as request, closing(self), explained_lost_peer(self.folder, self.ranks):
            self.stop_request = request  # one that comes too late is still there after the run
            while not session.is_trained:
                for pieces, num_rows in session.batches():
                    self.cluster_if_due()
                    self.train_step(pieces, num_rows)
                    self._after_step(num_rows)
                    self._leave_if_asked()
                    if session.step == self.config.max_steps:
                        break
                else:
                    session.is_stopped = session.stopping.end_epoch() and self.config.early_stopping
            if session.has_int8_rows:
                self.finalize()
                self._leave_if_asked()
            while not session.is_done:
                self.refit()
                self._leave_if_asked()
            return self._finish(name, series)

    def train_step(self, pieces: list[Batch], num_rows: int) -> None:
        """One step of the optimizer, on a batch in pieces that has so many rows on all ranks together."""
        session = self.session
        with session.stopwatch("train"):
            session.set_learning_rate()
            for optimizer in session.optimizers:
                optimizer.zero_grad()
            losses = [
                self._backward(piece, num_rows, is_last=index == len(pieces))
                for index, piece in enumerate(pieces, start=1)
            ]
            self.agree_to_go_on(losses)
            for optimizer in session.optimizers:
                optimizer.step()
            for loss in losses:
                session.loss_sum += loss
            session.step += 1

    def _backward(self, piece: Batch, num_rows: int, *, is_last: bool) -> float:
        """The gradients of a piece, and its loss."""
        session = self.session
        with session.parallel.without_reduction(when=not is_last):
            loss = self._loss(piece.to(session.device))
            share = self.ranks.world_size / num_rows  # of the gradients of several ranks the mean is taken
            (loss * share).backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def agree_to_go_on(self, losses: list[float]) -> None:
        """Let all ranks know whether any is to stop, and raise on all if the loss of any is not finite."""
        signals = torch.tensor([sum(losses), float(self.stop_request.is_set)], dtype=torch.float64)
        loss, is_to_stop = sum_over_ranks(signals, self.ranks).tolist()
        self.is_to_stop = bool(is_to_stop)
        self.guard.check_loss(loss)

    def _loss(self, batch: Batch) -> Tensor:
        """The sum of the rows' losses."""
        with self.session.autocast():
            logits = self.session.parallel(batch)
        return functional.binary_cross_entropy_with_logits(
            logits.float(), batch.labels, weight=batch.weights, reduction="sum"
        )

    def _after_step(self, num_rows: int) -> None:
        session, config = self.session, self.config
        session.loss_rows += num_rows
        self.progress.update(num_rows)
        if session.step % config.log_every == 0:
            self._log_training()
        is_validated = session.loader.position in self.validated_at
        if is_validated:
            self.validate()
        if is_validated or (config.checkpoint_every is not None and session.step % config.checkpoint_every == 0):
            self.save()

    def validate(self) -> None:
        """Score the validation rows, and note whether they were never better."""
        session = self.session
        self.guard.check_weights()
        session.catch_up()
        with session.stopwatch("validate"), self.guard.explained_logits():
            scores = session.score(session.model, "validation")
        leading = session.stopping.metric
        is_best = session.stopping.add(scores[leading.name], session.step)
        session.curve.append({"step": session.step, "epoch": session.epoch, **scores})
        self.write("validation", **scores)
        self.progress.update(0, validation=leading.format(scores[leading.name]))
        note = ", the best so far" if is_best else ""
        self.progress.say(f"step {session.step:,}: validation {format_scores(scores)}{note}")

    def _finish(self, name: str, series: str) -> RunRecord:
        """Save, score the best model on the test rows, and keep the record."""
        self.save()
        self.session.catch_up()
        self._model, best_step, damage = best_model(self.session, self.folder)
        for line in damage:
            self.progress.say(f"{line} The model of step {best_step:,} is the best that is left.")
        scores: Scores = {}
        if self.config.test and self.session.has_rows("test"):
            with self.session.stopwatch("test"):
                scores = self.session.score(self._model, "test")
            self.write("test", **scores, best_step=best_step)
        return keep_record(self.session, self._model, scores, self.folder, name=name, series=series)

    # -- small steps ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, folder: RunFolder, *, lock: bool) -> Iterator[None]:
        """Hold the lock of the run's folder: until the run is closed, or only here if the block fails."""
        self.folder, self.ranks = folder, current_ranks()
        with ExitStack() as stack:
            if lock and self.ranks.is_main:
                stack.enter_context(folder.lock())
            yield
            self._lock = stack.pop_all()

    def _open(self, config: TrainConfig) -> None:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.data = PreparedData.open(config.data, verify=config.verify)
        self.data.verify_first()  # damage of what is validated or tested on would be found after hours
        self.config = with_defaults(config, self.data)

    def _begin(self, session: Session, *, progress: bool) -> None:
        self.session, self._model = session, session.model
        self.guard = DivergenceGuard(session, self.folder)
        self.stop_request, self.is_to_stop = StopRequest(), False
        self.validated_at = session.validation_positions()
        log_to = self.folder if self.ranks.is_main else None
        self.log = MetricsLog(log_to, step=session.step, logger=self.config.logger, config=asdict(self.config))
        total = min(self.config.epochs * session.num_rows, session.total_steps * self.config.batch_size)
        shown = progress and self.ranks.is_main
        self.progress = Progress(total, shown=shown, first_row=session.rows_trained, name=self.config.method)
        if session.step == 0 and self.ranks.is_main:
            self._report_unseen()

    def _report_unseen(self) -> None:
        """Say how much of each split the tables know nothing about."""
        shares = shares_without_row(self.session.model, self.data)
        self.write("unseen", **shares)
        for line in unseen_lines(shares, "without a trained row"):
            self.progress.say(line)

    def close(self) -> None:
        """Finish what is shown and logged, leave the other processes, and unlock the folder."""
        self.progress.close()
        self.log.close()
        self.session.parallel.close()
        self._lock.close()

    def _write_config(self) -> None:
        if self.ranks.is_main:
            write_atomic(self.folder.config, to_toml(self.config))

    def save(self) -> None:
        """Write a checkpoint of what is finite."""
        with self.session.stopwatch("save"):
            self.guard.check_weights()
            self.session.save(self.folder)

    def _log_training(self) -> None:
        session = self.session
        total = sum_over_ranks(torch.tensor(session.loss_sum, dtype=torch.float64), self.ranks)
        loss = float(total) / session.loss_rows
        session.loss_sum, session.loss_rows = 0.0, 0
        self.write("train", loss=loss, lr=session.optimizers[0].param_groups[0]["lr"])
        notes = {"loss": f"{loss:.4f}", "memory": memory_text()}
        if session.schedule is not None and session.schedule.tables():
            step = session.schedule.next_step
            notes["next clustering"] = "none" if step is None else f"at step {step:,}"
        self.progress.update(0, **notes)

    def write(self, kind: str, **values: Any) -> None:
        """Write a line of the log."""
        self.log.write(kind, self.session.step, **values)

    def _leave_if_asked(self) -> None:
        """Save and leave if anyone was asked to stop before the step; all ranks leave together."""
        if self.is_to_stop and not self.session.is_done:
            self.save()
            raise KeyboardInterrupt(f"saved after step {self.session.step:,}; resume with {how_to_resume(self.folder)}")
