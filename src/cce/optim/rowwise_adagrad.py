"""Row-wise Adagrad: Adagrad with one accumulator for each row instead of one for each value.

As in FBGEMM (`EmbOptimType.EXACT_ROWWISE_ADAGRAD`): the rows of an embedding table share a learning rate, and the state
is `embedding_dim` times smaller than Adagrad's. For rows of one value it is `torch.optim.Adagrad`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cce.checks import check_flag
from cce.optim import compiled_steps as loops
from cce.optim.decay import CLOCK
from cce.optim.fused import Fused, available
from cce.optim.row_optimizer import RowOptimizer, check_not_negative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim.optimizer import ParamsT, StateDict


class RowwiseAdagrad(RowOptimizer):
    """`s_r += mean(g_r²)`, then `p_r -= lr · g_r / (√s_r + eps)`, for the rows `r` that have a gradient.

    A row is what `parameter[r]` is: a vector of a table, a number of a bias. `state[parameter]["sum"]` is `s`, of shape
    `(rows)`, stored in float32 for parameters of 16 bits.

    eps: added outside of the root, as in FBGEMM and torch.
    lr_decay: step `t` of a parameter has learning rate `lr / (1 + (t - 1) · lr_decay)`.
    weight_decay: decoupled, implicit and lazy (see `decay`), so not torch's. It knows no `lr_decay`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        *,
        eps: float = 1e-10,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "eps": eps,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
        }
        check_not_negative(**defaults)
        check_flag("maximize", maximize)
        super().__init__(params, {**defaults, "maximize": maximize})

    def update(self, group: dict[str, Any], parameters: Iterable[Tensor]) -> None:
        """Update what compiled loops can in one pass, and the rest in plain torch."""
        fused, rest, parameters = Fused(), [], list(parameters)
        if group["weight_decay"] or group[CLOCK]:  # it may have been set to 0 on the way
            self._decay_before(group, parameters)
        for parameter in parameters:
            grad = parameter.grad
            if grad is None:
                continue
            total = self._accumulator(group, parameter)
            loops_pay = available() and (grad.is_sparse or _is_wide(parameter))
            if not (loops_pay and fused.add(parameter, grad, total)):
                rest.append(parameter)
        self._step_fused(group, fused)
        for parameter in rest:
            self._step_plain(group, parameter)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on where `state_dict` was taken. (torch alone would round the accumulators of 16-bit parameters.)"""
        super().load_state_dict(state_dict)
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(indices, parameters, strict=True):
            if parameter.dtype.itemsize == 2 and index in state_dict["state"]:
                total = state_dict["state"][index]["sum"]
                self.state[parameter]["sum"] = total.to(parameter.device, torch.float32, copy=True)

    def _accumulator(self, group: dict[str, Any], parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        shape = parameter.shape[:1]
        if "sum" not in state:
            dtype = torch.float64 if parameter.dtype is torch.float64 else torch.float32
            start = group["initial_accumulator_value"]
            state["step"] = 0
            state["sum"] = torch.full(shape, start, dtype=dtype, device=parameter.device)
        total: Tensor = state["sum"]
        if total.shape != shape:
            raise ValueError(f"sum must have a value for each row, {tuple(shape)}, got {tuple(total.shape)}.")
        return total

    def _rate(self, group: dict[str, Any], parameter: Tensor) -> float:
        """Count a step of the parameter: its learning rate."""
        state = self.state[parameter]
        state["step"] += 1
        return float(group["lr"]) / (1 + (float(state["step"]) - 1) * float(group["lr_decay"]))

    def _step_fused(self, group: dict[str, Any], fused: Fused) -> None:
        sign = 1 if group["maximize"] else -1
        for tables in fused.check():
            tables.coalesce()
            rates = np.array([sign * self._rate(group, each) for each in tables.parameters], tables.number)
            tables.run(partial(loops.step_adagrad, tables.lines, rates, tables.number(group["eps"])))

    def _step_plain(self, group: dict[str, Any], parameter: Tensor) -> None:
        grad, total, rate = parameter.grad, self._accumulator(group, parameter), self._rate(group, parameter)
        assert grad is not None
        grad = -grad if group["maximize"] else grad
        if grad.is_sparse and grad.sparse_dim() == 1:
            _step_rows(parameter, grad.coalesce(), total, rate, group["eps"])
            return
        grad = grad.to_dense() if grad.is_sparse else grad
        _step_all(parameter, grad.to(total.dtype), total, rate, group["eps"])


def _is_wide(parameter: Tensor) -> bool:
    """Rows of several values. Others are Adagrad's, for which torch has its own loops."""
    return parameter.dim() > 1 and parameter.numel() > parameter.shape[0]


def _step_rows(parameter: Tensor, grad: Tensor, total: Tensor, rate: float, eps: float) -> None:
    rows, values = grad.indices()[0], grad.values().to(total.dtype)
    sums = total.index_select(0, rows).add_(_mean_squares(values))
    step = values / _beside(sums.sqrt().add_(eps), values)
    moved = parameter.index_select(0, rows).to(total.dtype).add_(step, alpha=-rate)
    total.index_copy_(0, rows, sums)
    parameter.index_copy_(0, rows, moved.to(parameter.dtype))


def _step_all(parameter: Tensor, grad: Tensor, total: Tensor, rate: float, eps: float) -> None:
    if grad.numel() == total.numel():
        total.addcmul_(grad.view_as(total), grad.view_as(total))  # to the bit what torch's Adagrad does
    else:
        total.add_(_mean_squares(grad))
    moved = parameter.to(total.dtype).addcdiv_(grad, _beside(total.sqrt().add_(eps), grad), value=-rate)
    if moved is not parameter:
        parameter.copy_(moved)


def _mean_squares(values: Tensor) -> Tensor:
    return values.square().flatten(1).mean(1) if values.dim() > 1 else values.square()


def _beside(rows: Tensor, values: Tensor) -> Tensor:
    """A value for each row, in a shape that goes with `values`."""
    return rows.view(rows.shape + (1,) * (values.dim() - rows.dim()))
