"""Stochastic gradient descent: `torch.optim.SGD`, where a sparse gradient touches only its own rows.

All gradients of a group are applied in one compiled pass. Results are those of torch to the bit, but for weight decay.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.optim.sgd import sgd

from cce.checks import check_flag, check_number
from cce.optim import compiled_steps as loops
from cce.optim.decay import CLOCK
from cce.optim.fused import Fused, available
from cce.optim.row_optimizer import RowOptimizer, check_not_negative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.optim.optimizer import ParamsT

SETTINGS = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")


class SGD(RowOptimizer):
    """`p -= lr · g` for the rows that have a gradient; without weight decay, `torch.optim.SGD`'s results.

    The constructor differs from torch's: all options after `lr` are given by name, and `foreach`, `fused` and
    `differentiable` are absent.

    momentum: every row that ever had a gradient moves at every step, so a step costs as much as with a dense gradient.
        torch does the same sum, in a sparse buffer that grows at every step; ours is dense.
    weight_decay: decoupled, implicit and lazy (see `decay`), so not torch's.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        check_not_negative(lr=lr, momentum=momentum, weight_decay=weight_decay)
        check_number("dampening", dampening, -math.inf)
        check_flag("nesterov", nesterov)
        check_flag("maximize", maximize)
        if nesterov and (momentum == 0 or dampening != 0):
            raise ValueError(f"nesterov needs momentum > 0 and dampening 0, got {momentum=} and {dampening=}.")
        values = (lr, momentum, dampening, weight_decay, nesterov, maximize)
        super().__init__(params, dict(zip(SETTINGS, values, strict=True)))

    def update(self, group: dict[str, Any], parameters: Iterable[Tensor]) -> None:
        """Gradients without momentum go through compiled loops, all others through torch's own step."""
        fused, rest, parameters = Fused(), [], list(parameters)
        if group["weight_decay"] or group[CLOCK]:  # it may have been set to 0 on the way
            self._decay_before(group, parameters, is_lazy=group["momentum"] == 0)
        in_loops = available() and group["momentum"] == 0
        for parameter in parameters:
            grad = parameter.grad
            if grad is None:
                continue
            if not (in_loops and fused.add(parameter, grad)):
                rest.append(parameter)
        self._step_fused(group, fused)
        if rest:
            self._step_torch(group, rest)

    def _step_fused(self, group: dict[str, Any], fused: Fused) -> None:
        rate = float(group["lr"]) if group["maximize"] else -float(group["lr"])
        for tables in fused.check():
            item = tables.number().itemsize
            tables.run(partial(loops.step_sgd, tables.lines, tables.number(rate), item))

    def _step_torch(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        buffers: list[Tensor | None] = [None] * len(grads)
        if group["momentum"] != 0:
            grads = [_dense(grad) for grad in grads]
            found = [self.state[parameter].get("momentum_buffer") for parameter in parameters]
            buffers = [None if buffer is None else _dense(buffer) for buffer in found]  # torch's own may be sparse
        settings = {name: group[name] for name in SETTINGS} | {"weight_decay": 0.0}
        sgd(parameters, grads, buffers, has_sparse_grad=any(grad.is_sparse for grad in grads), **settings)
        if group["momentum"] != 0:
            for parameter, buffer in zip(parameters, buffers, strict=True):
                self.state[parameter]["momentum_buffer"] = buffer


def _dense(tensor: Tensor) -> Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor
