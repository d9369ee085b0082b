"""Steps taken during backward: each parameter is updated as soon as its gradient is there, and the gradient freed.

Gradients of all parameters are then never in memory at once. Tables under plain SGD go further: a compiled lookup hands
sums of gradients to all its codebooks in one call, and no gradient is made at all (`kernels/cpu/row_steps.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from cce.checks import check_type
from cce.kernels import AttachedStep
from cce.optim import compiled_steps as loops
from cce.optim.decay import CLOCK
from cce.optim.fused import TYPES, Tables
from cce.optim.row_optimizer import RowOptimizer
from cce.optim.sgd import SGD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from cce.kernels import RowSums


def apply_in_backward(optimizer: RowOptimizer) -> InBackward:
    """Let `loss.backward()` update the parameters of `optimizer` and leave no gradients behind.

    Go on calling `optimizer.step()`: learning-rate schedules count it, and it takes in parameters that came later.
    `remove()` on what is returned ends it. Every `backward` is a step. So there is no accumulation over several of
    them, no clipping by the norm of all gradients, no `GradScaler`, and no `DistributedDataParallel`, which averages
    gradients only after this. A table that is looked up several times in one `backward` is stepped as often by SGD,
    which gives the same sum. Tables under SGD have no gradients then, so `torch.autograd.grad` finds none.
    """
    check_type("optimizer", optimizer, RowOptimizer, "an optimizer of cce.optim")
    return InBackward(optimizer)


class GroupStep:
    """The step of SGD on sums of gradients, for the codebooks of one parameter group."""

    def __init__(self, optimizer: RowOptimizer, group_index: int) -> None:
        self.optimizer, self.group_index = optimizer, group_index

    def is_ready(self, codebooks: Sequence[Tensor]) -> bool:
        """Whether steps add up, as those of SGD without momentum and decay do, on types that the loops know."""
        group = self.optimizer.param_groups[self.group_index]
        is_plain = isinstance(self.optimizer, SGD) and group["momentum"] == 0
        is_plain = is_plain and group["weight_decay"] == 0 and group[CLOCK] == 0  # no row lacks any, either
        return is_plain and codebooks[0].dtype in TYPES

    def take(self, codebooks: Sequence[Tensor], sums: RowSums) -> None:
        """Update rows in one compiled pass."""
        group = self.optimizer.param_groups[self.group_index]
        rate = float(group["lr"]) if group["maximize"] else -float(group["lr"])
        tables = Tables.of_sums(codebooks, sums)
        tables.run(partial(loops.step_sgd, tables.lines, tables.number(rate), tables.number().itemsize))


class InBackward:
    """Hooks on all parameters of an optimizer that are trained: see `apply_in_backward`."""

    def __init__(self, optimizer: RowOptimizer) -> None:
        self.optimizer = optimizer
        self._hooks: dict[Tensor, RemovableHandle] = {}
        self._attached: list[AttachedStep] = []
        self._steps = [GroupStep(optimizer, index) for index in range(len(optimizer.param_groups))]
        self._attach()
        self._after_step = optimizer.register_step_post_hook(self._follow)

    def remove(self) -> None:
        """Back to ordinary steps."""
        self._after_step.remove()
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()
        self._attached.clear()

    def _attach(self) -> None:
        for index, group in enumerate(self.optimizer.param_groups):
            if index == len(self._steps):
                self._steps.append(GroupStep(self.optimizer, index))
            for parameter in group["params"]:
                if parameter.requires_grad and parameter not in self._hooks:
                    hook = parameter.register_post_accumulate_grad_hook(partial(self._update, index))
                    self._hooks[parameter] = hook
                    self._attached.append(AttachedStep(parameter, self._steps[index]))

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
