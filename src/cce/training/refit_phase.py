"""The last phase of a run: rounds of refits, announced, limited in time, of which the best is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cce.collection import feature_name
from cce.distributed import broadcast
from cce.embeddings import Finalizable
from cce.reclustering import NumRounds, Refit, Source, is_on_parts, most_rounds, why_stop
from cce.text import format_seconds
from cce.training.outcome import go_back_to_best
from cce.training.phases import Phase

if TYPE_CHECKING:
    from cce.schema import Batch
    from cce.training.trainer import Trainer

# Time of a pass in epochs, about, for two tables in DeepFM and GMF on MovieLens 1M and Anime, on one CPU thread; the
# first round knows no better, and those after it how long it took.
PASS_EPOCHS = 0.6
LEAST_SECONDS = 20  # that rounds may take however short training was: small runs gain most by them
BATCH_ROWS = 1 << 13  # that the model sees at a time


class _EndedError(Exception):
    """Ctrl-C in a round."""


class RefitPhase(Phase):
    """Rounds of refits of the best model. Of several processes each passes over its share of the rows.

    When there are enough rounds is said by `why_stop`. With `refits="auto"` they take no longer than training did, or
    20 seconds: the trial comes if it is expected to end in time, and after it as many rounds as are. Ctrl-C ends them,
    and the best is kept.
    """

    name, state = "refit", ("num_rounds", "planned", "start_step", "start_score", "priors")

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.num_rounds, self.planned = 0, self.config.refits
        self.start_step = -1  # of the checkpoint that rounds begin with
        self.start_score: float | None = None  # its loss by validation
        self.refit: Refit | None = None
        self.priors: dict[str, Any] = {}  # what the rounds so far leave to those that follow

    @property
    def scores(self) -> list[float | None]:
        """Losses by validation: before the first round, and after each."""
        session, metric = self.session, self.session.stopping.metric
        if not session.has_rows("validation"):
            return [None] * (1 + self.num_rounds)
        rounds = session.curve[len(session.curve) - self.num_rounds :]
        return [self.start_score, *(metric.loss(scores[metric.name]) for scores in rounds)]

    @property
    def is_done(self) -> bool:
        return self.num_rounds >= self.planned

    def run(self) -> None:
        model = self.session.model
        if not any(isinstance(table, Finalizable) for table in model.modules()):  # all are small enough to be full
            self.planned = 0
            return
        self.refit = Refit(Source(model, self._batches, forward=lambda batch: (model(batch), batch), loss=_losses))
        self.refit.load_state_dict(self.priors)
        rounds: NumRounds = "auto" if self.config.is_limited else self.config.refits
        if self.num_rounds == 0:
            self._start()
            self.planned = most_rounds(rounds)
            self._limit()
        while not (why := why_stop(rounds, self.scores) or self._why_too_long()):
            if self.num_rounds == 0:
                self._announce()
            try:
                self._round()
            except _EndedError:
                self._end_early()
                break
            self.trainer.leave_if_asked()
        else:
            self.planned = self.num_rounds
            if self.config.is_limited:
                self.trainer.progress.say(f"no {'more ' if self.num_rounds else ''}refits: {why}")
        self._say_what_is_kept()

    def _batches(self) -> Iterator[Batch]:
        """The rows of this process."""
        session = self.session
        rows, ranks = session.data.rows("train"), session.ranks
        numbers = np.arange(ranks.rank, len(rows), ranks.world_size)
        for start in range(0, len(numbers), BATCH_ROWS):
            if self.trainer.can_end_refits and self.trainer.stop_request.is_interrupt:
                raise _EndedError
            yield rows.fetch(numbers[start : start + BATCH_ROWS]).to(session.device)

    def _start(self) -> None:
        """Go back to the best model, which is what rounds are compared with."""
        session, trainer, stopping = self.session, self.trainer, self.session.stopping
        self.start_step = session.step
        if stopping.best_step >= 0:
            self.start_step, self.start_score = stopping.best_step, stopping.best
        trainer.save()
        with session.stopwatch("refit"):
            go_back_to_best(session, trainer.folder)

    def _seconds(self, part: str) -> float:
        return self.session.stopwatch.seconds.get(part, 0.0)

    def _round_seconds(self) -> float:
        """Expected seconds of a round: those of the rounds before it, or guessed from the epochs of training."""
        assert self.refit is not None
        if self.num_rounds:
            return self._seconds("refit") / self.num_rounds
        epoch = self._seconds("train") / max(self.session.rows_trained / self.session.num_rows, 1e-9)
        return epoch * PASS_EPOCHS * self.refit.num_passes

    @property
    def _most_seconds(self) -> float:
        """Seconds that all rounds together may take."""
        return max(self._seconds("train"), LEAST_SECONDS)

    def _limit(self) -> None:
        """Plan no more rounds than end in time, the same on all processes, whose clocks differ."""
        if self.config.is_limited:
            seconds = self._most_seconds - self._seconds("refit")
            left = int(broadcast(max(0.0, seconds) / max(self._round_seconds(), 1e-9), self.session.ranks))
            if self.num_rounds == 0:  # the trial says how long a round takes
                self.planned *= min(left, 1)
            else:  # a second round is on parts, and pays with a third
                self.planned = min(self.planned, self.num_rounds + (left if left > 1 else 0))

    def _why_too_long(self) -> str:
        if self.num_rounds < self.planned:
            return ""
        return (
            f"a round takes about {format_seconds(self._round_seconds())}, and all of them may take "
            f"{format_seconds(self._most_seconds)}, as long as training; --refits N does N rounds"
        )

    def _announce(self) -> None:
        how_many = "1 round of refits follows" if self.planned == 1 else f"{self.planned} rounds of refits follow"
        if self.config.is_limited:
            how_many = f"up to {how_many}"
        self.trainer.progress.say(
            f"{how_many}, as {self.config.refits_because}: about {format_seconds(self._round_seconds())} each. "
            "Those before the last may score worse than it will. The best is kept; Ctrl-C ends them."
        )

    def _round(self) -> None:
        session, trainer = self.session, self.trainer
        assert self.refit is not None
        number = self.num_rounds + 1
        total = -(-session.num_rows // session.ranks.world_size) * self.refit.num_passes
        trainer.progress.start(total, f"refit {number}")
        with session.stopwatch("refit"):
            for feature, values in self.refit_tables().items():
                trainer.write("refit", table=feature, **values)
        if self.num_rounds == 1:
            self._limit()
        trainer.end_event(f"round {number} of {self.planned} of refits")

    def refit_tables(self) -> dict[str, dict[str, Any]]:
        """One round. Returns what it did to the table of each feature, in plain values."""
        session, refit = self.session, self.refit
        assert refit is not None
        generator = torch.Generator().manual_seed((self.config.seed + (self.num_rounds << 32)) % 2**63)
        on_parts = is_on_parts(self.num_rounds + 1, self.planned)
        seen = self.trainer.progress.update
        events = refit.round(generator=generator, ranks=session.ranks, seen=seen, on_parts=on_parts)
        self.num_rounds, self.priors = self.num_rounds + 1, refit.state_dict()
        session.parallel.refresh()
        return {feature_name(name.rpartition(".")[2]): asdict(event) for name, event in events.items()}

    def _end_early(self) -> None:
        self.trainer.stop_request.clear()
        self.planned = self.num_rounds
        self.trainer.progress.say(f"refits ended after round {self.num_rounds}, as was asked")

    def _say_what_is_kept(self) -> None:
        stopping = self.session.stopping
        if self.num_rounds and stopping.best_step >= 0:
            kept = stopping.best_step - (self.session.step - self.num_rounds)
            what = f"round {kept}" if kept > 0 else "the tables before refits"
            self.trainer.progress.say(f"kept: {what}, the best by validation")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; nothing was done if it is empty."""
        if state:
            super().load_state_dict(state)


def _losses(logits: Tensor, batch: Batch) -> Tensor:
    """The binary cross-entropy of each row, times its weight if rows have weights."""
    return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, weight=batch.weights, reduction="none")
