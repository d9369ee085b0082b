"""The scores of a model on a split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cce.distributed import Ranks, broadcast, gather_rows, sum_over_ranks
from cce.evaluation import StreamingScores, auc, binary_cross_entropy

if TYPE_CHECKING:
    from torch import nn

    from cce.data import Loader


@dataclass(frozen=True)
class Scores:
    """Of all rows of a split; the AUC is NaN if labels are all of one kind."""

    bce: float
    auc: float


@torch.no_grad()
def score(
    model: nn.Module,
    loader: Loader,
    *,
    device: torch.device,
    streaming: bool = False,
    ranks: Ranks | None = None,
) -> Scores:
    """Score all rows; every rank its share, and all get the same result."""
    ranks = Ranks() if ranks is None else ranks
    was_training = model.training
    model.eval()
    scores = _streaming_scores if streaming else _exact_scores
    result = broadcast(list(scores(model, loader, device, ranks)), ranks)
    model.train(was_training)
    return Scores(*result)


def _exact_scores(model: nn.Module, loader: Loader, device: torch.device, ranks: Ranks) -> tuple[float, float]:
    parts = []
    for batch in loader:
        weights = torch.ones_like(batch.labels) if batch.weights is None else batch.weights
        logits = model(batch.to(device)).float().cpu()
        parts.append(torch.stack([logits, batch.labels, weights], dim=1))
    logits, labels, weights = gather_rows(torch.cat(parts), ranks).unbind(1)
    return binary_cross_entropy(logits, labels, weights), _or_nan(lambda: auc(logits, labels, weights))


def _streaming_scores(model: nn.Module, loader: Loader, device: torch.device, ranks: Ranks) -> tuple[float, float]:
    scores = StreamingScores()
    for batch in loader:
        scores.add(model(batch.to(device)).float().cpu(), batch.labels, batch.weights)
    sum_over_ranks(scores.sums, ranks)
    return scores.bce, _or_nan(lambda: scores.auc)


def _or_nan(compute: object) -> float:
    try:
        return float(compute())  # type: ignore[operator]
    except ValueError:
        return math.nan
