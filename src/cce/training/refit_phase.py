"""The last phase of a run: rounds of refits, announced, limited in time, of which the best is kept."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.distributed import broadcast
from cce.reclustering import Fold, NextRound, NumRounds, Refit, cross_entropy, next_round
from cce.text import format_seconds
from cce.training.building import build_refit, set_learning_rate
from cce.training.checkpoint import checkpoint_path, read_checkpoint
from cce.training.outcome import go_back_to_best
from cce.training.phases import Phase

if TYPE_CHECKING:
    from cce.schema import Batch
    from cce.training.trainer import Trainer

# Time of a round on all rows for each group of tables, in epochs: 1.3 to 2.4 were measured, of two tables in DeepFM and
# GMF on parts of MovieLens 1M and Anime, on one CPU thread.
ROUND_EPOCHS = 2.0
FIRST_PASSES = 2  # of the first round: one for gradients, one for lengths of steps


class _EndedError(Exception):
    """Ctrl-C in a round."""


class WatchedRows:
    """Training rows that report how many of them were read."""

    def __init__(self, rows: Any, phase: RefitPhase) -> None:
        self.rows, self.phase = rows, weakref.proxy(phase)

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, numbers: np.ndarray) -> Batch:
        """The rows with these numbers."""
        self.phase.saw_rows(len(numbers))
        batch: Batch = self.rows.fetch(numbers)
        return batch


class RefitPhase(Phase):
    """Rounds of refits of the best model. Processes share the rows, and all take over the model of the first.

    The rounds are those of `next_round`. With `refits="auto"` they take about as long as training did, at most: the
    trial round comes if it is expected to, and tells how long the others take. Ctrl-C ends them, and the best is kept.
    """

    name = "refit"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.num_rounds, self.planned = 0, self.config.refits
        self.start_step = -1  # of the checkpoint that rounds begin with
        self.start_score: float | None = None  # its loss by validation
        self.refit: Refit | None = None
        self._priors: dict[str, Any] = {}
        self._rows_read, self._passes = 0, float(FIRST_PASSES)

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
        """Whether all rounds are done, or enough of them."""
        return self.num_rounds >= self.planned

    def run(self) -> None:
        """Do the rounds that are left."""
        session, trainer = self.session, self.trainer
        self.refit = build_refit(self.config, session.model, WatchedRows(session.data.rows("train"), self))
        if self.refit is None:
            self.planned = 0
            return
        self.refit.load_state_dict(self._priors)
        if self.num_rounds == 0:
            self._start()
        while not (turn := self._next()).stops:
            if self.num_rounds == 0 or turn.from_start:
                self._announce(turn)
            try:
                self._round(turn)
            except _EndedError:
                self._end_early()
                break
            trainer.leave_if_asked()
        self._say_what_is_kept()

    def _start(self) -> None:
        """Go back to the best model, which is what rounds are compared with."""
        session, trainer, stopping = self.session, self.trainer, self.session.stopping
        if stopping.best_step >= 0:
            self.start_step, self.start_score = stopping.best_step, stopping.best
        else:
            self.start_step = session.step
        trainer.save()
        with session.stopwatch("refit"):
            go_back_to_best(session, trainer.folder)

    def _next(self) -> NextRound:
        """What the next round is, the same on all processes, whose clocks differ."""
        rounds: NumRounds = "auto" if self.config.is_limited else self.config.refits
        turn = next_round(rounds, self.scores)
        if self.config.is_limited and (self.num_rounds == 0 or turn.from_start):
            needed, spent = self._expected_seconds(turn), self._seconds("refit")
            is_too_long = broadcast(needed + spent > self._seconds("train"), self.session.ranks)
            if is_too_long and not turn.stops:
                turn = NextRound(
                    stops=True,
                    why=f"they would take about {format_seconds(needed)}, and training took "
                    f"{format_seconds(self._seconds('train'))}; --refits N does N rounds",
                )
        self.planned = self.num_rounds + (0 if turn.stops else 1 + turn.left)
        if turn.stops and self.config.is_limited:
            self.trainer.progress.say(f"no {'more ' if self.num_rounds else ''}refits: {turn.why}")
        return turn

    def _seconds(self, part: str) -> float:
        return self.session.stopwatch.seconds.get(part, 0.0)

    def _expected_seconds(self, turn: NextRound) -> float:
        """Seconds of a round on all rows and, if it is no trial, of those before it.

        The first one is guessed from the epochs of training; after it, its own time is known.
        """
        refit = self.refit
        assert refit is not None
        epoch = self._seconds("train") / max(self.session.rows_trained / self.session.num_rows, 1e-9)
        whole = self._seconds("refit") if self.num_rounds else epoch * ROUND_EPOCHS * len(refit.groups)
        if not turn.from_start:
            return whole
        part = whole / refit.folds + (epoch / refit.folds if refit.network_fold is not None else 0.0)
        return whole + turn.left * part

    def _announce(self, turn: NextRound) -> None:
        is_trial = turn.use_all_rows and turn.left > 0
        seconds = format_seconds(self._expected_seconds(turn))
        if is_trial:
            what = f"a trial round of refits follows, as {self.config.refits_because}: about {seconds}."
        else:
            what = (
                f"{1 + turn.left} rounds of refits follow, as {self.config.refits_because}: about {seconds}. "
                "Scores of rounds before the last one look worse than they are."
            )
        self.trainer.progress.say(f"{what} The best round is kept; Ctrl-C ends them.")

    def _round(self, turn: NextRound) -> None:
        session, trainer = self.session, self.trainer
        assert self.refit is not None
        number, once = self.num_rounds + 1, self._rows_of_pass(turn)
        trainer.progress.start(round(self._passes * once), f"refit {number}", "refitted")
        self._rows_read = 0
        with session.stopwatch("refit"):
            if turn.from_start and self.num_rounds:
                self._restore(self.start_step)
                self.refit.priors.clear()
            for feature, values in self.refit_tables(turn).items():
                trainer.write("refit", table=feature, **values)
        self._passes = self._rows_read / once
        trainer.end_event(f"round {number} of {self.planned} of refits")

    def _rows_of_pass(self, turn: NextRound) -> int:
        """Rows of a pass over those of every group of tables."""
        assert self.refit is not None
        return max(1, len(self.refit.groups) * len(self.refit.source) // (1 if turn.use_all_rows else self.refit.folds))

    def _restore(self, step: int) -> None:
        """Let the model be that of a checkpoint, on all processes."""
        session = self.session
        path = checkpoint_path(self.trainer.folder.checkpoints, step)
        model = read_checkpoint(path).model if session.ranks.is_main else None
        session.model.load_state_dict(broadcast(model, session.ranks))

    def saw_rows(self, number: int) -> None:
        """Show progress, and leave the round if somebody asked to."""
        self._rows_read += number
        trainer = self.trainer
        trainer.progress.update(number)
        if trainer.can_end_refits and trainer.stop_request.is_interrupt:
            raise _EndedError

    def _end_early(self) -> None:
        """Drop the round under way; without scores all of them, as the last one makes them good."""
        self.trainer.stop_request.clear()
        self.planned = self.num_rounds
        self.trainer.progress.say(f"refits ended after round {self.num_rounds}, as was asked")
        self._restore(self.start_step if self.start_score is None else self.session.step)

    def _say_what_is_kept(self) -> None:
        stopping = self.session.stopping
        if self.num_rounds and stopping.best_step >= 0:
            first = self.session.step - self.num_rounds
            kept = stopping.best_step - first
            what = f"round {kept}" if kept > 0 else "the tables before refits"
            self.trainer.progress.say(f"kept: {what}, the best by validation")

    def refit_tables(self, turn: NextRound) -> dict[str, dict[str, Any]]:
        """One round, and the network trained on rows of its own after one on a part of the rows.

        Returns what the round did to the table of each feature, in plain values.
        """
        session, refit = self.session, self.refit
        assert refit is not None
        ranks, sent = session.ranks, None
        found: dict[str, dict[str, Any]]
        seed = (self.config.seed + (self.num_rounds << 32)) % 2**63
        generator = torch.Generator().manual_seed(seed)
        events = refit.round(use_all_rows=turn.use_all_rows, generator=generator, ranks=ranks)
        if ranks.is_main:
            if refit.network_fold is not None and turn.trains_network:
                self.train_network(refit.network_fold, seed)
            values = {name: asdict(event) for name, event in events.items()}
            sent = values, session.model.state_dict(), refit.state_dict()
        if ranks.world_size > 1:
            found, model, priors = broadcast(sent, ranks)
            if not ranks.is_main:
                session.model.load_state_dict(model)
                refit.load_state_dict(priors)
        else:
            found = values
        self.num_rounds += 1
        session.parallel.refresh()
        return found

    def train_network(self, fold: Fold, seed: int) -> None:
        """An epoch of all but the refitted tables on the rows of a fold, by an optimizer whose rate falls to zero."""
        config, session, rows = self.config, self.session, self.session.data.rows("train")
        numbers = np.random.default_rng(seed).permutation(fold.numbers(len(rows)))
        total_steps = -(-len(numbers) // config.batch_size)
        session.model.train()
        with self._only_the_network() as optimizer:
            for step in range(total_steps):
                set_learning_rate(optimizer, config.lr, step, schedule="cosine", total_steps=total_steps)
                batch = rows.fetch(numbers[step * config.batch_size :][: config.batch_size]).to(session.device)
                optimizer.zero_grad()
                logits = session.model(batch)
                cross_entropy(logits.float(), batch).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    @contextmanager
    def _only_the_network(self) -> Iterator[torch.optim.Optimizer]:
        """A new optimizer of what is not refitted; what is refitted has no gradients meanwhile."""
        refit = self.refit
        assert refit is not None
        fixed = [p for name in refit.features for p in refit.tables[name].parameters() if p.requires_grad]
        for parameter in fixed:
            parameter.requires_grad = False
        try:
            yield self.session.new_optimizer()
        finally:
            for parameter in fixed:
                parameter.requires_grad = True
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        priors = self._priors if self.refit is None else self.refit.state_dict()
        return {
            "num_rounds": self.num_rounds,
            "planned": self.planned,
            "start": [self.start_step, self.start_score],
            "priors": priors,
            "passes": self._passes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; nothing was done if it is empty."""
        if not state:
            return
        self.num_rounds, self.planned, self._priors = state["num_rounds"], state["planned"], state["priors"]
        self.start_step, self.start_score = state["start"]
        self._passes = state["passes"]
