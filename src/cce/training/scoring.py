"""The scores of a model on a split, by any metrics; several processes share the rows and get the same scores."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from cce.data import Loader, PartRows
from cce.distributed import Ranks, broadcast, gather_rows
from cce.evaluation import DEFAULT_METRICS, ScoredRows, check_rows, find_metric
from cce.schema import Batch

Scores = dict[str, float]  # by name of the metric; NaN where it is not defined


@torch.no_grad()
def score(
    model: nn.Module,
    loader: Iterable[Batch],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    device: torch.device,
    ranks: Ranks | None = None,
) -> Scores:
    """Score all rows; every rank its share, and all get the same result.

    loader: the batches, in order; with several ranks one that knows how many rows all have been given.
    """
    ranks = Ranks() if ranks is None else ranks
    was_training = model.training
    model.eval()
    parts, problem, start = [], "", 0
    for batch in loader:
        length = loader.position - start if isinstance(loader, Loader | PartRows) else len(batch)
        first_row = start + length * ranks.rank // ranks.world_size  # of this rank's, in the split
        start += length
        logits = model(batch.to(device)).float().cpu()
        rows = ScoredRows.of(logits, batch.labels, batch.weights)
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
    return dict(broadcast({info.name: info.score(whole) for info in map(find_metric, metrics)}, ranks))


def _gather(parts: Sequence[tuple[int, ScoredRows]], ranks: Ranks) -> ScoredRows:
    """The rows of all ranks in the order of the split, so that sums are the same on any number of ranks."""
    mine = ScoredRows.concatenate([rows for _, rows in parts])
    if ranks.world_size == 1:
        return mine
    positions = torch.cat([torch.arange(first, first + len(rows)) for first, rows in parts])
    floats = gather_rows(torch.stack([mine.logits, mine.labels, mine.weights], dim=1), ranks)
    order = gather_rows(positions, ranks).argsort()
    return ScoredRows(*floats[order].unbind(1))
