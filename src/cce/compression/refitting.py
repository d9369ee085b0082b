"""`refit`: the finalized tables of any torch model, fitted to the rows that it was trained on."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from cce.checks import check_flag, check_range, check_type
from cce.reclustering import NextRound, NumRounds, Refit, RefitEvent, Source, check_rounds, next_round
from cce.signals import uninterrupted
from cce.text import format_table

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class RefitRound:
    """What a round did."""

    tables: Mapping[str, RefitEvent]  # by name; none before the first round
    rows: str  # "" (before the first round), "part" or "all"
    score: float | None  # by `validate`
    seconds: float


@dataclass(frozen=True)
class Refitted:
    """What rounds of refits did to the tables of a model."""

    rounds: tuple[RefitRound, ...]  # the first one is the model as it was
    kept: int  # the round whose tables the model has now
    stopped: str  # why no other round followed

    def __str__(self) -> str:
        """A table, and why there are no more rounds."""
        lines = []
        for number, each in enumerate(self.rounds):
            events = each.tables.values()
            changed = f"{sum(event.churn for event in events) / len(events):.1%}" if events else ""
            score = "" if each.score is None else f"{each.score:.4f}"
            seconds = f"{each.seconds:.1f}" if events else ""
            kept = "kept" if number == self.kept else ""
            lines.append([str(number), each.rows, changed, seconds, score, kept])
        header = ["round", "rows", "pointers changed", "seconds", "score", ""]
        return f"{format_table(header, lines, num_left=2)}\nstopped: {self.stopped}"


def refit(
    model: nn.Module,
    batches: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    loss: Callable[[Tensor, Any], Tensor] | None = None,
    forward: Callable[[Any], tuple[Tensor, Any]] | None = None,
    validate: Callable[[], float] | None = None,
    train_network: Callable[[np.ndarray], object] | None = None,
    rounds: NumRounds = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Refitted:
    """Fit the pointers and codebooks of every finalized `cce` table of `model` to its own training rows, in place.

    All rounds but the last fit each table on a part of the rows, and look worse than they are: the last one uses all
    rows. Do not train on the same rows after it. Ctrl-C ends the rounds and keeps the best one so far by `validate`,
    or the model as it was if there is no score.

    batches: training rows, again and again in the same order: a DataLoader that does not shuffle, or a function that
        returns an iterator. Of several processes each gives its own share of the rows.
    loss: outputs `(rows)` and targets to the loss of each row, twice differentiable (default: cross-entropy of logits).
    forward: a batch to the model's outputs, one for each row, and the targets (default: a batch is a tuple, whose last
        element is the target and the others the inputs).
    validate: a score of the model as it is, of which less is better; the model of the best round is kept, that of
        before the first round if no round is better. Without it, that of the last round.
    train_network: called after every round on a part of the rows with the numbers of the rows, in the order of
        `batches`, that no table was fitted on: train everything but the tables on them, if the model has a network.
    rounds: how many. "auto": with `validate`, a trial round on all rows, and four others only if it improves the score;
        without `validate`, four.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_rounds(rounds)
    check_range("seed", seed, 0, 2**63)
    check_flag("progress", progress)
    source = Source(model, batches, forward=forward, loss=loss)
    has_network = train_network is not None
    fit = Refit(model, source, folds=2 + has_network, spare_fold=has_network)
    history = _History({"": model} if has_network else source.tables, validate)
    why = "interrupted"
    with tqdm(desc="refit", unit="table", disable=None if progress else True) as bar:
        try:
            while not (turn := next_round(rounds, [each.score for each in history.done])).stops:
                if turn.from_start:
                    history.restore(history.start)
                    fit.priors.clear()
                bar.total, began = bar.n + (1 + turn.left) * len(source.tables), time.perf_counter()
                events = _run(turn, fit, len(history.done) - 1, seed, train_network, bar)
                history.add("all" if turn.use_all_rows else "part", events, time.perf_counter() - began)
                bar.set_postfix_str("" if history.done[-1].score is None else f"{history.done[-1].score:.4f}")
            why = turn.why
            if validate is None:
                history.kept, history.best = len(history.done) - 1, {}  # the model as it is
        except KeyboardInterrupt:
            pass
        finally:
            history.restore(history.best)
    return Refitted(tuple(history.done), history.kept, why)


def _run(
    turn: NextRound,
    fit: Refit,
    number: int,
    seed: int,
    train_network: Callable[[np.ndarray], object] | None,
    bar: tqdm[Any],
) -> Mapping[str, RefitEvent]:
    generator = torch.Generator().manual_seed((seed + (number << 32)) % 2**63)
    events = fit.round(use_all_rows=turn.use_all_rows, generator=generator, done=lambda *_: bar.update())
    if train_network is not None and turn.trains_network:
        assert fit.network_fold is not None
        train_network(fit.network_fold.numbers(len(fit.source)))
    return events


class _History:
    """The rounds so far, and what the model was at the best of them.

    modules: what rounds change, by name.
    """

    def __init__(self, modules: Mapping[str, nn.Module], validate: Callable[[], float] | None) -> None:
        self.modules, self.validate = modules, validate
        self.start = self.best = self._snapshot()
        self.kept = 0
        self.done = [RefitRound({}, "", self._score(), 0.0)]

    def add(self, rows: str, events: Mapping[str, RefitEvent], seconds: float) -> None:
        """A round."""
        score, least = self._score(), self.done[self.kept].score
        self.done.append(RefitRound(events, rows, score, seconds))
        if score is not None and least is not None and score < least:
            self.kept, self.best = len(self.done) - 1, self._snapshot()

    def restore(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Let the model be what it was."""
        with uninterrupted():
            for name, state in states.items():
                self.modules[name].load_state_dict(state)

    def _score(self) -> float | None:
        return None if self.validate is None else float(self.validate())

    def _snapshot(self) -> dict[str, dict[str, Any]]:
        return {name: copy.deepcopy(module.state_dict()) for name, module in self.modules.items()}
