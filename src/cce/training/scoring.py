"""The scores of a model on a split, by any metrics; several processes share the rows and get the same scores."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.data import Loader
from cce.distributed import Ranks, broadcast, gather_rows
from cce.evaluation import DEFAULT_METRICS, ScoredRows, check_rows, find_metric

if TYPE_CHECKING:
    from cce.schema import Batch, Schema

Scores = dict[str, float]  # by name of the metric; NaN where it is not defined


@torch.no_grad()
def score(
    model: nn.Module,
    loader: Iterable[Batch],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    device: torch.device,
    groups: Callable[[Batch], Tensor] | None = None,
    ranks: Ranks | None = None,
) -> Scores:
    """Score all rows; every rank its share, and all get the same result.

    loader: the batches, in order; with several ranks a `Loader`, which knows how many rows all have been given.
    groups: gives the group of each row, for metrics by group.
    """
    ranks = Ranks() if ranks is None else ranks
    accumulators = {info.name: info.create() for info in map(find_metric, metrics)}
    was_training = model.training
    model.eval()
    parts, problem, start = [], "", 0
    for batch in loader:
        length = loader.position - start if ranks.world_size > 1 and isinstance(loader, Loader) else len(batch)
        first_row = start + length * ranks.rank // ranks.world_size  # of this rank's, in the split
        start += length
        logits = model(batch.to(device)).float().cpu()
        rows = ScoredRows.of(logits, batch.labels, batch.weights, groups(batch) if groups else None)
        try:
            check_rows(rows.logits, rows.labels, rows.weights, first_row=first_row)
        except ValueError as error:
            problem = problem or str(error)
            if ranks.world_size == 1:
                break
        parts.append((first_row, rows))
    model.train(was_training)
    has_problem = gather_rows(torch.tensor([int(bool(problem))]), ranks)
    if bool(has_problem.any()):  # on all ranks: one that went on alone would wait for the others for ever
        raise ValueError(broadcast(problem, ranks, source=int(has_problem.argmax())))
    whole = _gather(parts, ranks)
    for metric in accumulators.values():
        metric.add(whole)
    return dict(broadcast({name: each.compute() for name, each in accumulators.items()}, ranks))


def group_column(schema: Schema, name: str) -> Callable[[Batch], Tensor]:
    """What gives the group of each row: its id of a feature, or -1 for id 0, which stands for many unseen values."""
    names = [feature.name for feature in schema.features]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"the features are {', '.join(names)}."
        raise ValueError(f"group_by must name a feature of the data set, got {name!r}: {hint}")
    index = names.index(name)
    if schema.features[index].multi_hot:
        raise ValueError(f"group_by must name a feature with one id a row, got {name!r}, which has many.")

    def groups(batch: Batch) -> Tensor:
        if batch.offsets is None:
            ids = batch.ids[:, index]
        else:
            ids = batch.ids[batch.offsets[index * len(batch) : (index + 1) * len(batch)]]
        return torch.where(ids == 0, -1, ids)

    return groups


def _gather(parts: Sequence[tuple[int, ScoredRows]], ranks: Ranks) -> ScoredRows:
    """The rows of all ranks in the order of the split, so that sums are the same on any number of ranks."""
    mine = ScoredRows.concatenate([rows for _, rows in parts])
    if ranks.world_size == 1:
        return mine
    positions = torch.cat([torch.arange(first, first + len(rows)) for first, rows in parts])
    floats = gather_rows(torch.stack([mine.logits, mine.labels, mine.weights], dim=1), ranks)
    integers = gather_rows(torch.stack([positions, mine.groups], dim=1), ranks)
    order = integers[:, 0].argsort()
    logits, labels, weights = floats[order].unbind(1)
    return ScoredRows(logits, labels, weights, integers[order, 1])
