"""The phases of a run: train, finalize, refit. Each can be saved at any step, and resumed to the bit."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.compression import Finalized, finalize
from cce.distributed import sum_over_ranks
from cce.embeddings import Embedding, Finalizable, unshard
from cce.schema import Batch
from cce.text import format_bytes, format_table
from cce.training.monitoring import resident_nbytes
from cce.training.outcome import go_back_to_best, held_in_training
from cce.training.scoring import Scores
from cce.training.session import build_schedule, counts_of_tables, int8_tables, set_learning_rate

if TYPE_CHECKING:
    from cce.training.trainer import Trainer

LOG_EVERY = 100  # steps


class Phase(ABC):
    """A part of a run: `run` does what is left of it. `state` names what a resumed run must know."""

    name: ClassVar[str]
    state: ClassVar[tuple[str, ...]]

    def __init__(self, trainer: Trainer) -> None:
        self.trainer: Trainer = weakref.proxy(trainer)  # which is freed, and its folder with it, when it is dropped
        self.session, self.config = trainer.session, trainer.session.config

    @property
    @abstractmethod
    def is_done(self) -> bool: ...

    @abstractmethod
    def run(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: state[name] for name in self.state})


class TrainPhase(Phase):
    """Epochs of optimizer steps.

    A clustering that is due comes right before the next batch, so that what is validated and saved is what was trained.
    """

    name, state = "train", ("is_stopped", "loss_sum", "loss_rows")

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.is_stopped = False  # early
        self.loss_sum, self.loss_rows = 0.0, 0  # since the last line of the log
        self.schedule = build_schedule(self.config, self.session.model, self.session.optimizer)
        self.validated_at = self._validation_positions()

    @property
    def scores(self) -> Scores:
        """Those of a run without test rows."""
        return {}

    @property
    def is_done(self) -> bool:
        return self.is_stopped or self._is_cut() or self.session.loader.epoch >= self.config.epochs

    def _is_cut(self) -> bool:
        """Whether the last step is done, in an epoch that is not."""
        session = self.session
        return session.step >= self.config.max_steps and session.loader.position < session.num_rows

    def run(self) -> None:
        session, config = self.session, self.config
        total = min(config.epochs * session.num_rows, config.max_steps * config.batch_size)
        self.trainer.progress.start(total, config.method, first_row=session.rows_trained)
        while not self.is_done:
            if self.train_epoch():
                self.is_stopped = session.stopping.end_epoch() and config.early_stopping

    def train_epoch(self) -> bool:
        """Train on the rest of the epoch; whether its last row came."""
        loader = self.session.loader
        start = loader.position
        for batch in loader:
            num_rows, start = loader.position - start, loader.position
            self.cluster_if_due()
            self.train_step(batch, num_rows)
            self._after_step(num_rows)
            self.trainer.leave_if_asked()
            if self._is_cut():
                return False
        return True

    def train_step(self, batch: Batch, num_rows: int) -> None:
        """One step of the optimizer, on this rank's share of a batch that has `num_rows` rows on all ranks together."""
        session = self.session
        with session.stopwatch("train"):
            config = self.config
            set_learning_rate(
                session.optimizer, config.lr, session.step, schedule=config.lr_schedule, total_steps=config.max_steps
            )
            session.optimizer.zero_grad()
            loss = self.loss(batch.to(session.device))
            share = session.ranks.world_size / num_rows  # of the gradients of several ranks the mean is taken
            (loss * share).backward()  # type: ignore[no-untyped-call]
            value = float(loss.detach())
            self.trainer.agree_to_go_on(value)
            session.optimizer.step()
            self.loss_sum += value
            self.loss_rows += num_rows
            session.step += 1

    def loss(self, batch: Batch) -> Tensor:
        """The sum of the rows' losses."""
        logits = self.session.parallel(batch)
        return functional.binary_cross_entropy_with_logits(
            logits.float(), batch.labels, weight=batch.weights, reduction="sum"
        )

    def cluster_if_due(self) -> None:
        session, schedule, trainer = self.session, self.schedule, self.trainer
        if schedule is None or schedule.num_steps >= session.step:
            return
        with session.stopwatch("cluster"):
            if schedule.is_due(session.step):
                trainer.guard.check_weights()
            events = schedule.step()
        if events:
            session.parallel.refresh()
            for table, event in zip(schedule.clustered, events, strict=True):
                values = {name: getattr(event, name) for name in ("num_ids", "churn", "dead_rows", "seconds")}
                entropies = {f"H{order}": value for order, value in enumerate(event.entropies, start=1)}
                trainer.write("cluster", table=table, **values, **entropies)
            trainer.progress.say(f"step {session.step:,}: clustered {len(events)} tables")

    def _validation_positions(self) -> set[int]:
        """The rows of an epoch after which there is a validation: this many times, the last at its end."""
        session, times = self.session, self.config.validations_per_epoch
        if not session.has_rows("validation"):
            return set()
        steps = {max(1, round(self.config.steps_per_epoch * (index + 1) / times)) for index in range(times)}
        return {min(step * self.config.batch_size, session.num_rows) for step in steps}

    def _after_step(self, num_rows: int) -> None:
        trainer = self.trainer
        trainer.progress.update(num_rows)
        if self.session.step % LOG_EVERY == 0:
            self._log()
        self.after_rows(num_rows)

    def after_rows(self, num_rows: int) -> None:
        """Validate and save, if it is time to do so after these rows."""
        del num_rows
        if self.session.loader.position in self.validated_at:
            self.trainer.validate()
            self.trainer.save()

    def _log(self) -> None:
        session, trainer = self.session, self.trainer
        total = sum_over_ranks(torch.tensor(self.loss_sum, dtype=torch.float64), session.ranks)
        loss = float(total) / self.loss_rows
        self.loss_sum, self.loss_rows = 0.0, 0
        trainer.write("train", loss=loss, lr=session.optimizer.param_groups[0]["lr"])
        notes = {"loss": f"{loss:.4f}", "memory": format_bytes(resident_nbytes())}
        if self.schedule is not None and self.schedule.tables():
            step = self.schedule.next_step
            notes["next clustering"] = "none" if step is None else f"at step {step:,}"
        trainer.progress.update(0, **notes)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"schedule": None if self.schedule is None else self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])


class FinalizePhase(Phase):
    """Int8 rows of the best model become pointers and codebooks of the size that the options, or validation, choose."""

    name, state = "finalize", ("rows_steps", "trained_nbytes", "sizes", "curve_before")

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.rows_steps: list[int] = []  # the last step of int8 rows and their best, whose checkpoints are kept
        self.trained_nbytes: dict[str, dict[str, int]] = {}  # what tables held that are final now
        self.sizes: list[dict[str, Any]] = []  # that there were to choose from
        self.curve_before: list[dict[str, float]] = []  # validations of int8 rows

    @property
    def is_done(self) -> bool:
        """Whether no table has int8 rows, or they are to be trained again tomorrow."""
        return bool(self.config.stream) or not self.session.has_int8_rows

    def run(self) -> None:
        """Finalize all tables, the same on all processes.

        What comes after is another model, so that validations so far are forgotten; the log has them.
        """
        session, trainer = self.session, self.trainer
        best_step = session.stopping.best_step
        if not self.rows_steps:  # or the size is chosen again
            self.rows_steps = [session.step, best_step]
            trainer.save()
        with session.stopwatch("finalize"):
            go_back_to_best(session, trainer.folder)
            trainer.guard.check_weights()
            finalized = self.finalize()
        trainer.write("finalize", tables=[table.name for table in finalized.tables], sizes=self.sizes)
        self.curve_before, session.curve = session.curve, []
        session.stopping.forget()
        trainer.progress.say(sizes_table(self.sizes))
        best = f", from the rows of step {best_step:,}" if best_step >= 0 else ""
        before, after = format_bytes(finalized.before), format_bytes(finalized.nbytes)
        trainer.end_event(f"finalized {len(finalized.tables)} tables{best}: {before} of int8 rows, now {after}")
        trainer.leave_if_asked()

    def finalize(self, *, curve: bool = False) -> Finalized:
        """Finalize the model as it is; the optimizer keeps its state of the network."""
        session = self.session
        self.trained_nbytes = {name: held for name, held in held_in_training(session).items() if held["codes_nbytes"]}
        self._choose_unseen()
        finalized = self._choose(curve=curve)
        unshard(session.model)
        self.sizes = sizes_of(finalized, sum(held["codes_nbytes"] for held in self.trained_nbytes.values()))
        session.parallel.close()
        before = session.optimizer.state
        session.equip()
        kept = {parameter: state for parameter, state in before.items() if not hasattr(parameter, "int8_rows")}
        session.optimizer.state.update(kept)
        return finalized

    def _choose_unseen(self) -> None:
        """Where ids without a row have trained one together, keep it in the tables for which validation prefers it."""
        session = self.session
        rows = {name: table.rows for name, table in int8_tables(session.model).items() if table.rows.trains_unseen}
        if not rows or not session.has_rows("validation"):
            return
        best = self._validation_loss()
        for own in rows.values():
            trained = own.records[0].clone()
            own.records[0] = 0
            loss = self._validation_loss()
            if loss <= best:
                best, own.trains_unseen = loss, False
            else:
                own.records[0] = trained
        kept = [name for name, own in rows.items() if own.trains_unseen]
        self.trainer.progress.say(
            f"by validation, ids without a row read the trained one in {', '.join(kept) or 'no table'}, else zeros"
        )

    def _validation_loss(self) -> float:
        metric = self.session.stopping.metric
        return metric.loss(self.session.score(self.session.model, "validation")[metric.name])

    def _choose(self, *, curve: bool) -> Finalized:
        """Finalize, in the size of the options, or the smallest that validation cannot tell from int8 rows."""
        session, config = self.session, self.config
        size = size_arguments(session.model, config.nbytes, config.bits)
        if session.has_rows("validation"):
            size["validate"] = self._validation_loss
            size |= {} if config.bits or config.nbytes is not None else {"tolerance": config.tolerance}
        counts = counts_of_tables(session.model, session.data)
        return finalize(session.model, counts=counts, seed=config.seed, curve=curve, **size)


def size_arguments(model: nn.Module, nbytes: int | None, bits: float | None) -> dict[str, Any]:
    """Arguments of `finalize` for a size of all tables, of which full ones keep theirs."""
    if nbytes is None:
        return {"bits": bits} if bits else {}
    tables = [table for table in model.modules() if isinstance(table, Embedding)]
    others = sum(table.nbytes for table in tables if not isinstance(table, Finalizable) or table.is_final)
    if nbytes <= others:
        raise ValueError(f"nbytes must be above {others}, those of full tables, got {nbytes}.")
    return {"nbytes": nbytes - others}


def sizes_of(finalized: Finalized, rows_nbytes: int) -> list[dict[str, Any]]:
    """The sizes that there were to choose from, in plain values, and int8 rows at the end."""
    sizes = [
        {
            "nbytes": size.nbytes,
            "bits": size.bits,
            "variance_lost": size.distortion,
            "loss": size.loss,
            "is_chosen": size == finalized.chosen,
            "is_knee": size == finalized.knee,
        }
        for size in finalized.curve
    ]
    rows = {"nbytes": rows_nbytes, "loss": finalized.loss_before, "bits": None, "variance_lost": 0.0}
    return [*sizes, rows | {"is_chosen": False, "is_knee": False}]


def sizes_table(sizes: Sequence[Mapping[str, Any]]) -> str:
    """The sizes, with a bar for what validation loses against int8 rows."""
    lines, least = [], sizes[-1]["loss"]
    lost = [max(0.0, size["loss"] - least) for size in sizes if size["loss"] is not None and least is not None]
    for size in sizes:
        notes = [note for note, is_so in (("knee", size["is_knee"]), ("chosen", size["is_chosen"])) if is_so]
        notes += ["int8 rows"] if size["bits"] is None else []
        loss, bar = "", ""
        if lost and size["loss"] is not None:
            loss = f"{size['loss']:.5f}"
            bar = "▇" * round(20 * max(0.0, size["loss"] - least) / (max(lost) or 1.0))
        bits = "" if size["bits"] is None else f"{size['bits']:.1f}"
        lines.append([format_bytes(size["nbytes"]), bits, f"{size['variance_lost']:.2%}", loss, ", ".join(notes), bar])
    headers = ["bytes served", "bits per id", "variance lost", "validation loss", "", "more than int8 rows"]
    return format_table(headers, lines, num_left=0)
