"""What `SGD` and `RowwiseAdagrad` share: the step, and argument checks."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cce.checks import check_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class RowOptimizer(Optimizer, abc.ABC):
    """An optimizer that can update some parameters of a group and leave the others for later."""

    @abc.abstractmethod
    def update(self, group: dict[str, Any], parameters: Iterable[Tensor]) -> None:
        """Update those of `parameters` that have a gradient, by the settings of `group`. Runs without gradients."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient; `closure` computes gradients again and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(group, group["params"])
        return loss


def check_not_negative(**settings: float | Tensor) -> None:
    """Reject settings below zero."""
    for name, value in settings.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(value.shape)}.")
        check_number(name, value.item() if isinstance(value, Tensor) else value)


def reject_decay(group: dict[str, Any]) -> None:
    """Weight decay shrinks every row at every step: not what a sparse gradient is for. torch rejects it as well."""
    if group["weight_decay"] != 0:
        raise ValueError(f"weight_decay must be 0 with sparse gradients, got {group['weight_decay']}.")
