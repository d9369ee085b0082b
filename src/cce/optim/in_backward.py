"""Steps taken during backward: each parameter is updated as soon as its gradient is there, and the gradient freed.

Gradients of all parameters are then never in memory at once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from cce.checks import check_type
from cce.optim.row_optimizer import RowOptimizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle


def apply_in_backward(optimizer: RowOptimizer) -> InBackward:
    """Let `loss.backward()` update the parameters of `optimizer` and leave no gradients behind.

    Go on calling `optimizer.step()`: learning-rate schedules count it, and it takes in parameters that came later.
    `remove()` on what is returned ends it. Every `backward` is a step. So there is no accumulation over several of
    them, no clipping by the norm of all gradients, no `GradScaler`, and no `DistributedDataParallel`, which averages
    gradients only after this.
    """
    check_type("optimizer", optimizer, RowOptimizer, "an optimizer of cce.optim")
    return InBackward(optimizer)


class InBackward:
    """Hooks on all parameters of an optimizer that are trained: see `apply_in_backward`."""

    def __init__(self, optimizer: RowOptimizer) -> None:
        self.optimizer = optimizer
        self._hooks: dict[Tensor, RemovableHandle] = {}
        self._attach()
        self._after_step = optimizer.register_step_post_hook(self._follow)

    def remove(self) -> None:
        """Back to ordinary steps."""
        self._after_step.remove()
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    def _attach(self) -> None:
        for index, group in enumerate(self.optimizer.param_groups):
            for parameter in group["params"]:
                if parameter.requires_grad and parameter not in self._hooks:
                    hook = parameter.register_post_accumulate_grad_hook(partial(self._update, index))
                    self._hooks[parameter] = hook

    @torch.no_grad()
    def _update(self, index: int, parameter: Tensor) -> None:
        group = self.optimizer.param_groups[index]  # looked up again: load_state_dict exchanges groups
        self.optimizer.update(group, [parameter])
        parameter.grad = None

    def _follow(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        """After `step()`, which applied the gradients of parameters that had no hook."""
        del optimizer, args, kwargs
        self._attach()
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
