"""`refit`: the finalized tables of any torch model, fitted to the rows that it was trained on."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from cce.checks import check_flag, check_function, check_range, check_type
from cce.compression.compact import Validate, mean_loss
from cce.reclustering import NumRounds, Refit, RefitEvent, Source, check_rounds, is_on_parts, most_rounds, why_stop
from cce.signals import uninterrupted
from cce.text import format_table


@dataclass(frozen=True)
class RefitRound:
    """What a round did."""

    tables: Mapping[str, RefitEvent]  # by name; none before the first round
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
            lines.append([str(number), changed, seconds, score, "kept" if number == self.kept else ""])
        header = ["round", "pointers changed", "seconds", "score", ""]
        return f"{format_table(header, lines, num_left=1)}\nstopped: {self.stopped}"


def refit(
    model: nn.Module,
    batches: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    loss: Callable[[Tensor, Any], Tensor] | None = None,
    forward: Callable[[Any], tuple[Tensor, Any]] | None = None,
    validate: Validate | None = None,
    rounds: NumRounds = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Refitted:
    """Fit the pointers and codebooks of every finalized `cce` table of `model` to its own training rows, in place.

    Do not train on the same rows after it. Ctrl-C ends the rounds and keeps the best one so far by `validate`, or the
    last whole one if there is no score.

    batches: the training rows in any order, once for each pass: a DataLoader, or a function that returns an iterator.
        Of several processes each gives its own share of the rows. Large batches are faster.
    loss: outputs `(rows)` and targets to the loss of each row, twice differentiable (default: cross-entropy of logits).
    forward: a batch to the model's outputs, one for each row, and the targets (default: a batch is a tuple, whose last
        element is the target and the others the inputs).
    validate: a score of the model, or of its argument if it takes one, of which less is better; on every process, whose
        scores are averaged. The model of the best round is kept, that of before the first round if no round is better.
        Without it, that of the last round.
    rounds: how many; those between the first and the last are on parts of the rows, and may score worse than the last
        one will. "auto": four, but with `validate` no other if the first gains little.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_rounds(rounds)
    check_range("seed", seed, 0, 2**63)
    check_flag("progress", progress)
    check_function("validate", validate, "a loss")
    check_function("loss", loss, "the loss of each row")
    check_function("forward", forward, "outputs and targets")
    source = Source(model, batches, forward=forward, loss=loss)
    fit = Refit(source)
    score = None if validate is None else mean_loss(model, validate)
    done, kept, best, why = [RefitRound({}, score, 0.0)], 0, _tables_of(source), "interrupted"
    try:
        while not (stop := why_stop(rounds, [each.score for each in done])):
            number, began = len(done), time.perf_counter()
            generator = torch.Generator().manual_seed((seed + (number << 32)) % 2**63)
            num_rounds = most_rounds(rounds)
            on_parts = is_on_parts(number, num_rounds)
            with _bar(fit, f"refit {number} of {num_rounds}", done[-1].score, is_shown=progress) as bar:
                events = fit.round(generator=generator, seen=lambda _: bar.update(), on_parts=on_parts)
            done.append(RefitRound(events, None, time.perf_counter() - began))
            if validate is not None:
                done[-1] = RefitRound(events, mean_loss(model, validate), done[-1].seconds)
            if validate is None or done[-1].score < done[kept].score:  # type: ignore[operator]
                kept, best = number, _tables_of(source)
        why = stop
    except KeyboardInterrupt:
        pass
    finally:
        with uninterrupted():
            for name, state in best.items():
                source.tables[name].load_state_dict(state)
    return Refitted(tuple(done), kept, why)


def _bar(fit: Refit, name: str, score: float | None, *, is_shown: bool) -> tqdm[Any]:
    """Progress of a round, with the remaining time if it is known how many batches there are."""
    num_batches, note = fit.source.num_batches, "" if score is None else f"score {score:.4f}"
    total = None if num_batches is None else num_batches * fit.num_passes
    return tqdm(total=total, desc=name, unit="batch", postfix=note, leave=False, disable=None if is_shown else True)


def _tables_of(source: Source) -> dict[str, dict[str, Any]]:
    return {name: copy.deepcopy(table.state_dict()) for name, table in source.tables.items()}
