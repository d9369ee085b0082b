"""Rows with their logits and labels, checked before any metric sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def check_rows(logits: Tensor, labels: Tensor, weights: Tensor | None = None, *, first_row: int = 0) -> None:
    """Reject logits that are not finite, labels other than 0 and 1, and weights that are negative or not finite.

    first_row: position of the first of these rows in the whole split, for the message.
    """
    for name, values in (("labels", labels), ("weights", weights)):
        if values is not None and values.shape != logits.shape:
            raise ValueError(f"{name} must have the shape of logits, {list(logits.shape)}, got {list(values.shape)}.")
    _check("logits", "be finite", logits, torch.isfinite(logits), first_row)
    _check("labels", "be 0 or 1", labels, (labels == 0) | (labels == 1), first_row)
    if weights is not None:
        _check("weights", "be finite and at least 0", weights, torch.isfinite(weights) & (weights >= 0), first_row)


def _check(name: str, rule: str, values: Tensor, is_valid: Tensor, first_row: int) -> None:
    if bool(is_valid.all()):
        return
    wrong = torch.nonzero(~is_valid.flatten()).flatten()
    position = int(wrong[0])
    value, where = float(values.flatten()[position]), f"the first, at position {first_row + position:,},"
    raise ValueError(f"{name} must {rule}, got {len(wrong):,} of {values.numel():,} that are not; {where} is {value}.")
