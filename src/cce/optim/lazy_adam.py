"""Lazy Adam: Adam (Kingma and Ba, ICLR 2015) whose moments are those of the rows that a batch used.

As `torch.optim.SparseAdam` and TensorFlow's `LazyAdam`: a row without a gradient keeps its moments and its place, so
a sparse step costs what its rows cost. Unlike torch's it takes dense gradients too, and decays weights.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam

from cce.checks import check_flag, shown
from cce.optim.compiled_adam import step_adam
from cce.optim.decay import CLOCK
from cce.optim.fused import Fused, available
from cce.optim.row_optimizer import RowOptimizer, check_not_negative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim.optimizer import ParamsT

MOMENTS = ("exp_avg", "exp_avg_sq")


class LazyAdam(RowOptimizer):
    """`p -= lr · m̂ / (√v̂ + eps)` for the rows that have a gradient; for dense gradients `torch.optim.Adam`, to the bit.

    m and v are the moments of a row over the steps in which it had a gradient; their bias is corrected by the number of
    steps of the parameter, as torch's SparseAdam does.

    weight_decay: decoupled, implicit and lazy (see `decay`).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        maximize: bool = False,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        check_flag("maximize", maximize)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be two numbers in [0, 1), got {shown(betas)}.")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)

    def update(self, group: dict[str, Any], parameters: Iterable[Tensor]) -> None:
        """Sparse gradients row by row, in compiled loops where there are any; dense ones by torch's own step."""
        used = [parameter for parameter in parameters if parameter.grad is not None]
        if group["weight_decay"] or group[CLOCK]:  # it may have been set to 0 on the way
            self._decay_before(group, used)
        fused, rows, dense = Fused(), [], []
        for parameter in used:
            self._begin(parameter)
            grad, mean = parameter.grad, self.state[parameter]["exp_avg"]
            assert grad is not None
            if not grad.is_sparse:
                dense.append(parameter)
            elif not (available() and self._is_contiguous(parameter) and fused.add(parameter, grad, mean)):
                rows.append(parameter)
        self._step_fused(group, fused)
        for parameter in rows:
            self._step_rows(group, parameter)
        if dense:
            self._step_torch(group, dense)

    def _is_contiguous(self, parameter: Tensor) -> bool:
        """Whether moments lie as the values do, and are of their type."""
        moments = [self.state[parameter][name] for name in MOMENTS]
        return all(each.is_contiguous() and each.dtype is parameter.dtype and each.is_cpu for each in moments)

    def _step_fused(self, group: dict[str, Any], fused: Fused) -> None:
        for tables in fused.check():
            tables.coalesce()
            squares = np.array([self.state[each]["exp_avg_sq"].data_ptr() for each in tables.parameters], np.int64)
            rates = np.array([self._rates(group, each) for each in tables.parameters])
            settings = np.array([*group["betas"], group["eps"], tables.number().itemsize])
            tables.run(partial(step_adam, tables.lines, squares, rates, settings))

    def _rates(self, group: dict[str, Any], parameter: Tensor) -> tuple[float, float]:
        """Count a step of the parameter: what its mean is multiplied by, and the root of its mean square."""
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        state["step"] += 1
        step, sign = float(state["step"]), 1 if group["maximize"] else -1
        return sign * float(group["lr"]) / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)

    def _begin(self, parameter: Tensor) -> None:
        state = self.state[parameter]
        if not isinstance(state.get("step"), Tensor):  # a number in states of torch's SparseAdam
            state["step"] = torch.tensor(float(state.get("step", 0)), device="cpu")
        if MOMENTS[0] not in state:
            for name in MOMENTS:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def _step_rows(self, group: dict[str, Any], parameter: Tensor) -> None:
        grad, state, (beta1, beta2) = parameter.grad, self.state[parameter], group["betas"]
        assert grad is not None
        rate, scale = self._rates(group, parameter)
        rows, values = _rows_of(grad)
        mean = state["exp_avg"].index_select(0, rows).lerp_(values, 1 - beta1)
        square = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(values, values, value=1 - beta2)
        divisor = square.sqrt().mul_(scale).add_(group["eps"])
        moved = parameter.index_select(0, rows).addcdiv_(mean, divisor, value=rate)
        for target, new in ((state["exp_avg"], mean), (state["exp_avg_sq"], square), (parameter, moved)):
            target.index_copy_(0, rows, new)

    def _step_torch(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        means, squares, steps = ([state[name] for state in states] for name in (*MOMENTS, "step"))
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        (beta1, beta2), lr, eps = group["betas"], group["lr"], group["eps"]
        settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "maximize": group["maximize"]}
        adam(parameters, grads, means, squares, [], steps, **settings, amsgrad=False, weight_decay=0.0)


def _rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that have a gradient, and their values."""
    grad = grad.coalesce()
    if grad.sparse_dim() == 1:
        return grad.indices()[0], grad.values()
    rows = torch.unique(grad.indices()[0])
    return rows, grad.to_dense().index_select(0, rows)
