"""The moments of `PointerDescent`, for each frequency group and dimension, and what follows from them for a step.

Plain torch is the definition, and a compiled loop gives the same bits: there is little to compute, and much of it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cce.optim import code_loops as loops
from cce.optim.fused import available

if TYPE_CHECKING:
    from torch import Tensor

    from cce.embeddings import QuantizedEmbedding
    from cce.optim.code_steps import RowSums

NEVER = loops.NEVER


class Moments(NamedTuple):
    """Running means, in float32, which follow those of a batch in place."""

    squares: Tensor  # (groups, width): of squared gradients, over all ids of the group, seen or not
    visits: Tensor  # (groups, 1): how often an id of the group is seen in a step


class Settings(NamedTuple):
    """What a step depends on besides."""

    lr: float
    weight_decay: float
    beta: float
    eps: float
    step: int  # counted from 1

    @property
    def weight(self) -> float:
        """Of all steps so far in a running mean that started at zero."""
        return float(1 - self.beta**self.step)


def follow_moments(
    table: QuantizedEmbedding, moments: Moments, summed: RowSums, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Let moments follow a batch. What codes are multiplied by, and how many codes a gradient of 1 moves them.

    Both are float32 `(groups, width)`.
    """
    in_loops = available() and moments.squares.is_cpu
    return (_follow_in_loops if in_loops else _follow_plain)(table, moments, summed, settings)


def follow_means(table: QuantizedEmbedding, moments: Moments, summed: RowSums, beta: float) -> None:
    """Let moments follow a batch, in plain torch."""
    sizes = torch.from_numpy(group_sizes(table)).to(summed.squares).unsqueeze(1)
    counts = torch.bincount(summed.groups, minlength=len(sizes)).unsqueeze(1)
    for mean, sums in zip(moments, (summed.squares, counts), strict=True):
        mean.copy_(mean.double() * beta + sums / sizes * (1 - beta))


def _follow_plain(
    table: QuantizedEmbedding, moments: Moments, summed: RowSums, settings: Settings
) -> tuple[Tensor, Tensor]:
    beta, lr = settings.beta, settings.lr
    follow_means(table, moments, summed, beta)
    squares = moments.squares.double() / settings.weight
    visits = (moments.visits.double() / settings.weight).clamp(min=NEVER)
    window = ((1 - beta) / visits).clamp(min=1)  # Adam forgets an id that is not seen for so long
    root = (squares * window).sqrt() + settings.eps
    keep = 1 / (1 + lr * settings.weight_decay / (visits * root))
    return keep.float(), (lr * keep / (root * table.scale.double())).float()


def _follow_in_loops(
    table: QuantizedEmbedding, moments: Moments, summed: RowSums, settings: Settings
) -> tuple[Tensor, Tensor]:
    keep, gain = torch.empty_like(moments.squares), torch.empty_like(moments.squares)
    loops.follow_moments(
        (moments.squares.numpy(), moments.visits.numpy()),
        (summed.squares.numpy(), summed.groups.numpy(), group_sizes(table), table.scale.detach().double().numpy()),
        (settings.lr, settings.weight_decay, settings.beta, settings.eps, settings.weight),
        keep.numpy(),
        gain.numpy(),
    )
    return keep, gain


def group_sizes(table: QuantizedEmbedding) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows of each group."""
    starts = [*table.group_starts, len(table.codes.values)]
    return np.array([last - first for first, last in pairwise(starts)], np.int64)
