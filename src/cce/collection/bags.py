"""Bags of ids of several features: concatenated from one input per feature, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from cce.checks import shown

Jagged = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]  # values, offsets, and weights


def join_bags(columns: Sequence[Tensor | Jagged]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features that come one by one, as ids `(batch)` or as bags, concatenated: ids, offsets and weights of all."""
    bags: list[Jagged] = [
        (column, torch.arange(len(column) + 1, device=column.device)) if isinstance(column, Tensor) else column
        for column in columns
    ]
    sizes = sorted({len(offsets) - 1 for _, offsets, *_ in bags})
    if len(sizes) > 1:
        raise ValueError(f"offsets of every feature must have batch + 1 values, got batches of {sizes}.")
    ids = torch.cat([values for values, *_ in bags])
    starts = [0, *accumulate(len(values) for values, *_ in bags)]
    for values, offsets, *_ in bags:
        if offsets.device.type == "cpu" and not torch.compiler.is_compiling() and not _rise(offsets, len(values)):
            raise ValueError(f"offsets must rise from 0 to the number of ids, {len(values)}, got {shown(offsets)}.")
    cuts = [own[:-1].long() + start for (_, own, *_), start in zip(bags, starts, strict=False)]
    boundaries = torch.cat([*cuts, ids.new_tensor(starts[-1:], dtype=torch.int64)])
    if all(len(bag) == 2 for bag in bags):
        return ids, boundaries, None
    weights = [bag[2] if len(bag) == 3 else torch.ones(len(bag[0]), device=ids.device) for bag in bags]
    return ids, boundaries, torch.cat(weights)


def check_equal_lengths(columns: Mapping[str, Any]) -> None:
    """Reject features of which one has more examples than another."""
    sizes = {name: column.numel() for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"ids of every feature must have as many examples, got {shown(sizes)}.")


def check_bags(ids: Tensor, offsets: Tensor, weights: Tensor | None, num_features: int) -> int:
    """The size of the batch."""
    batch, rest = divmod(len(offsets) - 1, num_features)
    if offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64) or rest or batch < 0:
        raise ValueError(
            f"offsets must be int32 or int64 with features · batch + 1 values for {num_features} features, "
            f"got {offsets.dtype} of shape {tuple(offsets.shape)}."
        )
    if ids.dim() != 1:
        raise ValueError(f"ids must be 1-D with offsets, got shape {tuple(ids.shape)}.")
    if weights is not None and weights.shape != ids.shape:
        raise ValueError(f"per_sample_weights must have the shape of ids, got {tuple(weights.shape)}.")
    if offsets.device.type == "cpu" and not torch.compiler.is_compiling() and not _rise(offsets, len(ids)):
        raise ValueError(f"offsets must rise from 0 to the number of ids, {len(ids)}, got {shown(offsets)}.")
    return batch


def _rise(offsets: Tensor, end: int) -> bool:
    return len(offsets) > 0 and int(offsets[0]) == 0 and int(offsets[-1]) == end and not (offsets.diff() < 0).any()
