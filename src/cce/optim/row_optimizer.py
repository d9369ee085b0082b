"""What all optimizers here share: the step, weight decay, and argument checks."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cce.checks import check_number
from cce.optim import decay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class RowOptimizer(Optimizer, abc.ABC):
    """An optimizer that can update some parameters of a group and leave the others for later.

    `weight_decay` is decoupled, implicit and, with sparse gradients, lazy: see `decay`. Rows of a table that were not
    visited for a while may lack up to 1 % of decay; `catch_up` gives it to them, before they are evaluated or saved.
    """

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
            if group["weight_decay"] != 0:
                decay.decay_group(self.state, group)
        return loss

    @torch.no_grad()
    def catch_up(self) -> None:
        """Give every row the decay that it lacks. Before tables are read: evaluated, clustered, saved or exported."""
        for group in self.param_groups:
            decay.catch_up(self.state, group)

    def caught_up(self) -> dict[Tensor, Tensor]:
        """What parameters of which rows lack some decay will be after `catch_up`; nothing is changed."""
        return {
            parameter: decay.caught_up(self.state, group, parameter)
            for group in self.param_groups
            if group[decay.CLOCK] > 0
            for parameter in group["params"]
            if decay.is_lazy(self.state, parameter)
        }

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, whose rows lack no decay."""
        param_group.setdefault(decay.CLOCK, 0.0)
        super().add_param_group(param_group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault(decay.CLOCK, 0.0)  # a state of torch's own has none

    def _decay_before(self, group: dict[str, Any], parameters: Iterable[Tensor]) -> None:
        """Bring what is about to be stepped up to date: rows of sparse gradients, or all rows of others."""
        visited = []
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                visited.append(parameter)
            elif parameter.grad is not None:
                decay.catch_up_parameter(self.state, group, parameter)
        decay.visit_rows(self.state, group, visited)


def check_not_negative(**settings: float | Tensor) -> None:
    """Reject settings below zero."""
    for name, value in settings.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(value.shape)}.")
        check_number(name, value.item() if isinstance(value, Tensor) else value)
