"""The training loop: batches in, a trained model and a record out; stopped at any moment and resumed to the bit."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from cce.data import PreparedData
from cce.data.manifest import MANIFEST
from cce.diagnostics import summary
from cce.distributed import Ranks, broadcast, sum_over_ranks
from cce.records import RunRecord, write_records, write_whole
from cce.training.building import build_model, build_schedule
from cce.training.checkpoint import (
    checkpoint_path,
    list_checkpoints,
    prune_checkpoints,
    read_checkpoint,
    read_latest,
    write_checkpoint,
)
from cce.training.config import TrainConfig, make_config, read_toml
from cce.training.early_stopping import EarlyStopping
from cce.training.interrupts import Wish, polite_interrupts
from cce.training.learning_rate import learning_rate_factor, set_learning_rate
from cce.training.metrics_log import MetricsLog
from cce.training.optimizers import create_optimizers
from cce.training.parallel import ParallelModel
from cce.training.progress import Progress, memory_text
from cce.training.random_state import random_state, restore_random_state
from cce.training.scoring import Scores, score
from cce.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from cce.schema import Batch

ASK_EVERY = 8  # steps between two looks whether another process wishes to stop


class Trainer:
    """Trains a model on a prepared data set, as `config` says, and keeps its checkpoints and its log in `out`.

    A clustering that is due comes right before the next batch, so that what is validated and saved is what was trained.
    """

    def __init__(
        self, config: TrainConfig, out: Path | str, *, ranks: Ranks | None = None, progress: bool = False
    ) -> None:
        self.config, self.out = config, Path(out)
        self.ranks = Ranks() if ranks is None else ranks
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.data = PreparedData.open(config.data)
        self.device = self.ranks.device(config.device)
        self._set_up(build_model(config, self.data.schema).to(self.device), progress=progress)
        if self.ranks.is_main:
            _check_free(self.out)
            write_whole(self.out / "config.toml", config.to_toml())
        self._open_log()

    @classmethod
    def resume(cls, out: Path | str, *, ranks: Ranks | None = None, progress: bool = False, **changes: Any) -> Trainer:
        """Go on with the run in `out`, from its newest whole checkpoint; `changes` may be `epochs` and `max_steps`."""
        self = cls.__new__(cls)
        self.out = Path(out)
        self.ranks = Ranks() if ranks is None else ranks
        values = broadcast(read_toml(self.out / "config.toml") if self.ranks.is_main else None, self.ranks)
        self.config = make_config(values | changes)
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        self.data = PreparedData.open(self.config.data)
        self.device = self.ranks.device(self.config.device)
        self._restore(progress=progress)
        return self

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        """Train to the end. Ctrl-C finishes the batch, saves, and raises KeyboardInterrupt with how to resume."""
        try:
            with polite_interrupts() as wish:
                while not self.is_done:
                    for pieces, num_rows in self._batches():
                        self._cluster_if_due()
                        self._train_step(pieces, num_rows)
                        self._after_step(num_rows)
                        self._leave_if_wished(wish)
                        if self.step == self.config.max_steps:
                            break
                    else:
                        self.stopped = self.stopping.end_epoch() and self.config.early_stopping
                return self._finish()
        except RuntimeError as error:
            self._explain(error)
            raise
        finally:
            self.progress.close()
            self.log.close()
            self.parallel.close()

    @property
    def is_done(self) -> bool:
        """Whether all epochs are done, or enough of them."""
        return self.stopped or self.loader.epoch >= self.config.epochs or self.step == self.config.max_steps

    def _train_step(self, pieces: list[Batch], num_rows: int) -> None:
        with self.stopwatch("train"):
            config = self.config
            factor = learning_rate_factor(
                self.step,
                schedule=config.lr_schedule,
                warmup_steps=config.warmup_steps,
                total_steps=self.total_steps,
            )
            set_learning_rate(self.optimizers, config.lr * factor)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            for place, piece in enumerate(pieces, start=1):
                with self.parallel.without_reduction(when=place < len(pieces)):
                    loss = self._loss(piece.to(self.device)) / num_rows
                    (loss * self.ranks.num_ranks).backward()  # type: ignore[no-untyped-call]  # ranks are averaged
                self.loss_sum += float(loss.detach()) * num_rows
            for optimizer in self.optimizers:
                optimizer.step()
            self.step += 1

    def _loss(self, batch: Batch) -> Tensor:
        """The sum of the rows' losses."""
        with self._autocast():
            logits = self.parallel(batch)
        return functional.binary_cross_entropy_with_logits(
            logits.float(), batch.labels, weight=batch.weights, reduction="sum"
        )

    def _after_step(self, num_rows: int) -> None:
        self.loss_rows += num_rows
        self.progress.update(num_rows)
        if self.step % self.config.log_every == 0:
            self._log_training()
        validated = self.loader.position in self.validation_positions
        is_best = self._validate() if validated else False
        every = self.config.checkpoint_every
        if validated or is_best or (every is not None and self.step % every == 0):
            self.save()

    def _cluster_if_due(self) -> None:
        if self.schedule is None or self.schedule.num_steps >= self.step:
            return
        with self.stopwatch("cluster"):
            events = self.schedule.step()
        if events:
            self.parallel.refresh()
            for event in events:
                facts = {"churn": event.churn, "dead_rows": event.dead_rows, "moved": event.moved}
                entropies = {f"H{order}": value for order, value in enumerate(event.entropies_after, start=1)}
                ids = {"num_ids": event.num_ids, "seconds": event.total_seconds}
                self._write("cluster", **facts, **entropies, **ids)
            self.progress.say(f"step {self.step:,}: clustered {len(events)} tables")

    def _validate(self) -> bool:
        with self.stopwatch("validate"):
            scores = self._score(self.model, "validation")
        is_best = self.stopping.add(scores.bce, self.step)
        self.curve.append({"step": self.step, "epoch": self.loader.epoch + 1, **asdict(scores)})
        self._write("validation", bce=scores.bce, auc=scores.auc)
        self.progress.update(0, validation=f"{scores.bce:.4f}")
        note = ", the best so far" if is_best else ""
        self.progress.say(f"step {self.step:,}: validation BCE {scores.bce:.5f}, AUC {scores.auc:.5f}{note}")
        return is_best

    # -- state ---------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of this moment."""
        if self.schedule is not None:
            self.schedule.add_up_counts()
        if not self.ranks.is_main:
            return
        with self.stopwatch("save"):
            folder = self.out / "checkpoints"
            write_checkpoint(folder, self.step, self.model.state_dict(), self.state_dict())
            prune_checkpoints(folder, keep_last=self.config.keep_last, best_step=self.stopping.best_step)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run must know, besides the model."""
        return {
            "step": self.step,
            "config": asdict(self.config),
            "data": _fingerprint(self.data),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "loader": self.loader.state_dict(),
            "stopping": self.stopping.state_dict(),
            "stopped": self.stopped,
            "curve": self.curve,
            "loss": [self.loss_sum, self.loss_rows],
            "seconds": self.stopwatch.seconds,
            "random": random_state(),
        }

    def _restore(self, *, progress: bool) -> None:
        found: Any = None
        if self.ranks.is_main:
            checkpoint, damage = read_latest(self.out / "checkpoints")
            found = (checkpoint.model, checkpoint.state, damage)
        weights, state, damage = broadcast(found, self.ranks)
        if state["data"] != _fingerprint(self.data):
            raise ValueError(f"data must be the data set that the run began with, but {self.config.data} has changed.")
        model = build_model(self.config, self.data.schema)
        model.load_state_dict(weights)  # before there are optimizers: it may replace parameters
        self._set_up(model.to(self.device), progress=progress, first_row=self._rows_before(state["loader"]))
        self._load_state(state)
        for line in damage:
            self.progress.say(f"{line} The one before it is used.")
        self._open_log()

    def _load_state(self, state: dict[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.loader.load_state_dict(state["loader"])
        self.stopping.load_state_dict(state["stopping"])
        self.step, self.stopped, self.curve = state["step"], state["stopped"], state["curve"]
        self.loss_sum, self.loss_rows = state["loss"]
        self.stopwatch.seconds = dict(state["seconds"])
        restore_random_state(state["random"])

    def _set_up(self, model: nn.Module, *, progress: bool, first_row: int = 0) -> None:
        config, ranks = self.config, self.ranks
        self.model = model
        self.parallel = ParallelModel(model, ranks)
        self.optimizers = create_optimizers(
            config.optimizer, model, lr=config.lr, weight_decay=config.weight_decay, options=config.optimizer_options
        )
        self.loader = self.data.loader(
            "train",
            batch_size=config.batch_size // config.accumulate,
            seed=config.seed,
            rank=ranks.rank,
            num_ranks=ranks.num_ranks,
        )
        self.num_rows = self.data.num_rows("train")
        self.steps_per_epoch = -(-self.num_rows // config.batch_size)
        self.total_steps = min(config.epochs * self.steps_per_epoch, config.max_steps or 2**63)
        shown = progress and ranks.is_main
        self.schedule = build_schedule(
            config, model, self.optimizers, steps_per_epoch=self.steps_per_epoch, ranks=ranks, progress=shown
        )
        self.validation_positions = self._validation_positions()
        self.stopping = EarlyStopping()
        self.stopwatch = Stopwatch()
        self.curve: list[dict[str, float]] = []
        self.step, self.stopped, self.loss_sum, self.loss_rows = 0, False, 0.0, 0
        total_rows = min(config.epochs * self.num_rows, self.total_steps * config.batch_size)
        self.progress = Progress(total_rows, shown=shown, first_row=first_row, name=config.method)

    # -- small steps ---------------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[tuple[list[Batch], int]]:
        """The pieces of each batch of the rest of the epoch, and how many rows it has on all ranks together."""
        pieces: list[Batch] = []
        start = self.loader.position
        for piece in self.loader:
            pieces.append(piece)
            if len(pieces) == self.config.accumulate or self.loader.position == self.num_rows:
                yield pieces, self.loader.position - start
                pieces, start = [], self.loader.position

    def _validation_positions(self) -> set[int]:
        """The rows of an epoch after which there is a validation: so many times, the last at its end."""
        if "validation" not in self.data.splits or not self.data.num_rows("validation"):
            return set()
        times = self.config.validations_per_epoch
        steps = {max(1, round(self.steps_per_epoch * (index + 1) / times)) for index in range(times)}
        return {min(step * self.config.batch_size, self.num_rows) for step in steps}

    def _score(self, model: nn.Module, split: str) -> Scores:
        loader = self.data.loader(
            split,
            batch_size=self.config.evaluation_batch_size * self.ranks.num_ranks,
            shuffle=False,
            rank=self.ranks.rank,
            num_ranks=self.ranks.num_ranks,
        )
        with self._autocast():
            return score(model, loader, device=self.device, streaming=self.config.auc == "streaming", ranks=self.ranks)

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16) if self.config.precision == "bf16" else nullcontext()

    def _log_training(self) -> None:
        loss = float(sum_over_ranks(torch.tensor(self.loss_sum, dtype=torch.float64), self.ranks)) / self.loss_rows
        self.loss_sum, self.loss_rows = 0.0, 0
        self._write("train", loss=loss, lr=self.optimizers[0].param_groups[0]["lr"])
        upcoming = self.schedule.next_step if self.schedule is not None and self.schedule.tables() else None
        notes = {"loss": f"{loss:.4f}", "memory": memory_text()}
        self.progress.update(0, **notes, **({} if upcoming is None else {"clusters at step": f"{upcoming:,}"}))

    def _write(self, kind: str, **values: Any) -> None:
        if self.ranks.is_main:
            self.log.write(kind, self.step, **values)

    def _open_log(self) -> None:
        folder = self.out if self.ranks.is_main else None
        self.log = MetricsLog(folder, step=self.step, tensorboard=self.config.tensorboard)

    def _rows_before(self, loader: dict[str, Any]) -> int:
        return int(loader["epoch"] * self.data.num_rows("train") + loader["position"])

    def _leave_if_wished(self, wish: Wish) -> None:
        """Save and leave if someone wishes so; processes ask each other now and then, and leave together."""
        wished = wish.to_stop
        if self.ranks.num_ranks > 1:
            if self.step % ASK_EVERY:
                return
            wished = bool(sum_over_ranks(torch.tensor(int(wished)), self.ranks))
        if wished and not self.is_done:
            self.save()
            raise KeyboardInterrupt(f"stopped after step {self.step:,} and saved; go on with: {self._how_to_resume()}")

    def _how_to_resume(self) -> str:
        return f"cce train --resume {self.out}"

    def _explain(self, error: RuntimeError) -> None:
        """Say what a broken connection means."""
        signs = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL", "Timed out waiting")
        if self.ranks.num_ranks > 1 and any(sign in str(error) for sign in signs):
            kept = list_checkpoints(self.out / "checkpoints")
            where = f"the last checkpoint is {kept[-1]}" if kept else "there is no checkpoint as yet"
            raise ConnectionError(
                f"another process of this run has died: {where}; go on with: {self._how_to_resume()}"
            ) from error

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self) -> RunRecord:
        """Save the last moment, score the best one on the test rows, and write the record."""
        self.save()
        self.model = self._best_model()
        split = next((s for s in ("test", "validation") if s in self.data.splits and self.data.num_rows(s)), None)
        scores = Scores(float("nan"), float("nan"))
        if self.config.test and split is not None:
            with self.stopwatch("test"):
                scores = self._score(self.model, split)
            self._write(split, bce=scores.bce, auc=scores.auc, best_step=self.stopping.best_step)
        weights = summary(self.model).total
        seconds = self.stopwatch.seconds
        trained = self._rows_before(self.loader.state_dict())
        record = RunRecord(
            method=self.config.method,
            seed=self.config.seed,
            num_params=weights.num_params,
            nbytes=weights.nbytes,
            bce=scores.bce,
            auc=scores.auc,
            seconds=sum(seconds.values()),
            config=asdict(self.config),
            curve=self.curve,
            samples_per_second=trained / max(seconds.get("train", 0.0), 1e-9),
            seconds_by_part=dict(seconds),
        )
        if self.ranks.is_main:
            write_records([record], self.out / "record.jsonl")
        return record

    def _best_model(self) -> nn.Module:
        """A model as it was at the best validation, or as it is now if there was none."""
        if self.stopping.best_step < 0:
            return self.model
        path = checkpoint_path(self.out / "checkpoints", self.stopping.best_step)
        weights = broadcast(read_checkpoint(path).model if self.ranks.is_main else None, self.ranks)
        model = build_model(self.config, self.data.schema)
        model.load_state_dict(weights)
        return model.to(self.device)


def _check_free(out: Path) -> None:
    if (out / "config.toml").exists():
        raise FileExistsError(
            f"{out} holds a run already: give another folder, or go on with: cce train --resume {out}"
        )


def _fingerprint(data: PreparedData) -> str:
    """Of the data set: its manifest holds the checksums of all its files."""
    content = json.dumps(json.loads((data.path / MANIFEST).read_text(encoding="utf-8")), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
