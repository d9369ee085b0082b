"""`refit`: the finalized tables of any torch model, fitted to the rows that it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from cce.checks import check_flag, check_range, check_type
from cce.embeddings import Compact
from cce.reclustering import BatchRows, Refit
from cce.signals import uninterrupted
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from cce.embeddings import CCEEmbedding
    from cce.reclustering import RefitEvent


@dataclass(frozen=True)
class RefitRound:
    """What a round did."""

    tables: Mapping[str, RefitEvent]  # by name; none before the first round
    score: float | None  # by `validate`


@dataclass(frozen=True)
class Refitted:
    """What rounds of refits did to the tables of a model."""

    rounds: tuple[RefitRound, ...]  # the first one is the model as it was
    kept: int  # the round whose tables the model has now

    def __str__(self) -> str:
        """A table."""
        lines = []
        for number, each in enumerate(self.rounds):
            events = each.tables.values()
            changed = f"{sum(event.churn for event in events) / len(events):.1%}" if events else ""
            score = "" if each.score is None else f"{each.score:.4f}"
            lines.append([str(number), changed, score, "kept" if number == self.kept else ""])
        return format_table(["round", "pointers changed", "score", ""], lines)


def refit(
    model: nn.Module,
    batches: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    loss: Callable[[Tensor, Any], Tensor] | None = None,
    forward: Callable[[Any], tuple[Tensor, Any]] | None = None,
    validate: Callable[[], float] | None = None,
    train_network: Callable[[np.ndarray], object] | None = None,
    num_rounds: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> Refitted:
    """Fit the pointers and codebooks of every finalized `cce` table of `model` to its own training rows, in place.

    All rounds but the last fit each table on a part of the rows, and look worse than they are: the last one uses all
    rows. Do not train on the same rows after it. If it is interrupted, the tables are the best ones so far by
    `validate`, or without it those of before.

    batches: training rows, again and again in the same order: a DataLoader that does not shuffle, or a function that
        returns an iterator. Of several processes each gives its own share of the rows.
    loss: outputs `(rows)` and targets to the loss of each row, twice differentiable (default: cross-entropy of logits).
    forward: a batch to the model's outputs, one for each row, and the targets (default: a batch is a tuple, whose last
        element is the target and the others the inputs).
    validate: a score of the model as it is, of which less is better; the tables of the best round are kept, those of
        before the first round if no round is better. Without it, those of the last round.
    train_network: called after every round but the last with the numbers of the rows, in the order of `batches`, that
        no table was fitted on: train everything but the tables on them, if the model has a network.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_range("num_rounds", num_rounds, 1, 2**31)
    check_range("seed", seed, 0, 2**63)
    check_flag("progress", progress)
    source = BatchRows(model, batches, forward=forward, loss=loss)
    has_network = train_network is not None
    fit = Refit(model, source, folds=2 + has_network, spare_fold=has_network)
    rounds = _Rounds(source.tables, validate)
    bar = tqdm(total=num_rounds * len(source.tables), desc="refit", unit="table", disable=None if progress else True)
    with bar, rounds:
        for turn in range(num_rounds):
            is_last, generator = turn == num_rounds - 1, torch.Generator().manual_seed((seed + (turn << 32)) % 2**63)
            events = fit.round(use_all_rows=is_last, generator=generator, done=lambda *_: bar.update())
            if train_network is not None and not is_last:
                assert fit.network_fold is not None
                train_network(fit.network_fold.numbers(len(source)))
            bar.set_postfix_str(rounds.add(events))
    return Refitted(tuple(rounds.done), rounds.kept)


class _Rounds:
    """The rounds so far, and the tables of the best of them, which a model has afterwards."""

    def __init__(self, tables: Mapping[str, CCEEmbedding], validate: Callable[[], float] | None) -> None:
        self.tables, self.validate = tables, validate
        self.done: list[RefitRound] = []
        self.kept = 0

    def __enter__(self) -> None:
        self.best = self._tables()
        self.done.append(RefitRound({}, self._score()))

    def add(self, events: Mapping[str, RefitEvent]) -> str:
        """A round; what to show of it."""
        score = self._score()
        self.done.append(RefitRound(events, score))
        if score is None:
            return ""
        least = self.done[self.kept].score
        if least is None or score < least:
            self.kept, self.best = len(self.done) - 1, self._tables()
        return f"{score:.4f}"

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.validate is None:
            self.kept = len(self.done) - 1
            return
        with uninterrupted():
            for name, compact in self.best.items():
                self.tables[name].become(compact)

    def _score(self) -> float | None:
        return None if self.validate is None else float(self.validate())

    def _tables(self) -> dict[str, Compact]:
        return {name: _compact(table) for name, table in self.tables.items()}


def _compact(table: CCEEmbedding) -> Compact:
    codebooks = table.codebook.detach().clone().view(table.num_columns, table.num_rows, table.width)
    return Compact(codebooks, table.pointers.store, 0.0)
