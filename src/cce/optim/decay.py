"""Weight decay that does not depend on how often a row is visited: decoupled, implicit and lazy.

Every step decays every trained value: `p ← (p - lr · d) / (1 + lr · weight_decay)`, where `d` is the direction in which
the optimizer moves (decoupled: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019). The decay is
the implicit step on `weight_decay / 2 · p²`, which shrinks at any learning rate and never overshoots.

With a dense gradient this happens at once. With a sparse one only the rows of the batch are touched. Each group has a
clock, the sum of `log(1 + lr · weight_decay)` over its steps, and each row a number: the clock up to which it is
decayed. A row that is visited catches up first, so it has decayed by all steps since its last visit at the learning
rates of those steps. As a forward pass reads rows before they are visited, all rows catch up whenever the clock has
advanced by `MAX_LAG`: no row is ever read that is too large by more than 1 %. A row's number is a time on the clock and
not a step, so that no history of learning rates is needed; it takes 4 bytes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from cce.optim.compiled_decay import decay_rows
from cce.optim.fused import Fused, available

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    State = Mapping[Tensor, dict[str, Any]]

CLOCK = "decay_clock"  # of a group
ROWS = "decayed"  # in the state of a parameter: the clock up to which each row is decayed
MAX_LAG = 0.01  # of the clock: how much decay a row may lack


def visit_rows(state: State, group: dict[str, Any], parameters: Iterable[Tensor]) -> None:
    """Let the rows of sparse gradients catch up, before they are stepped; from now on these parameters are lazy."""
    clock, fused = group[CLOCK], Fused()
    for parameter in parameters:
        check_decayed(parameter)
        grad, rows = parameter.grad, _row_clocks(state, parameter, clock)
        assert grad is not None
        if not (available() and fused.add(parameter, grad, rows)):
            _decay_some(parameter, torch.unique(grad._indices()[0]), rows, clock)
    for tables in fused.check():
        rounded = float(tables.number(clock))
        tables.run(partial(decay_rows, tables.lines, rounded, tables.number().itemsize))


def decay_group(state: State, group: dict[str, Any]) -> None:
    """The decay of one step: at once, or for lazy parameters on the clock."""
    factor = 1 + float(group["lr"]) * float(group["weight_decay"])
    trained = [parameter for parameter in group["params"] if parameter.requires_grad]
    eager = [parameter for parameter in trained if not is_lazy(state, parameter)]
    for parameter in eager:
        check_decayed(parameter)
    if eager:
        torch._foreach_div_(eager, factor)
    if len(eager) < len(trained):
        group[CLOCK] += math.log(factor)
        if group[CLOCK] >= MAX_LAG:
            catch_up(state, group)


def catch_up(state: State, group: dict[str, Any]) -> None:
    """Decay every row of lazy parameters by what it lacks, and start the clock again."""
    for parameter in group["params"]:
        catch_up_parameter(state, group, parameter)
        if is_lazy(state, parameter):
            state[parameter][ROWS].zero_()
    group[CLOCK] = 0.0


def catch_up_parameter(state: State, group: dict[str, Any], parameter: Tensor) -> None:
    """Decay every row of a parameter by what it lacks, if it is lazy."""
    if not is_lazy(state, parameter):
        return
    rows, clock = state[parameter][ROWS], group[CLOCK]
    parameter.addcmul_(parameter, _factors(rows, clock, parameter))
    rows.fill_(clock)


def caught_up(state: State, group: dict[str, Any], parameter: Tensor) -> Tensor:
    """What a lazy parameter will be once it has caught up; it stays as it is."""
    factors = _factors(state[parameter][ROWS], group[CLOCK], parameter)
    return torch.addcmul(parameter.detach(), parameter.detach(), factors)


def is_lazy(state: State, parameter: Tensor) -> bool:
    """Whether rows of the parameter may lack some decay."""
    return ROWS in state.get(parameter, ())


def check_decayed(parameter: Tensor) -> None:
    """Reject types in which the decay of one step is lost by rounding."""
    if parameter.dtype.itemsize < 4:
        raise ValueError(
            f"weight_decay needs parameters of 32 or 64 bits, got {parameter.dtype}, where a step of it is rounded off."
        )


def _row_clocks(state: State, parameter: Tensor, clock: float) -> Tensor:
    own = state[parameter]
    if ROWS not in own:  # up to now it was decayed at every step
        own[ROWS] = torch.full(parameter.shape[:1], clock, dtype=parameter.dtype, device=parameter.device)
    rows: Tensor = own[ROWS]
    if rows.shape != parameter.shape[:1]:
        raise ValueError(f"{ROWS} must have a value for each of {len(parameter)} rows, got {tuple(rows.shape)}.")
    return rows


def _decay_some(parameter: Tensor, used: Tensor, rows: Tensor, clock: float) -> None:
    values = parameter.index_select(0, used)
    values.addcmul_(values, _factors(rows.index_select(0, used), clock, values))
    parameter.index_copy_(0, used, values)
    rows.index_fill_(0, used, clock)


def _factors(rows: Tensor, clock: float, values: Tensor) -> Tensor:
    """What values are multiplied by and grow by: a negative number for each row, in a shape that goes with `values`."""
    rounded = torch.tensor(clock, dtype=rows.dtype).double().item()
    factors = torch.expm1(rows.double() - rounded).to(values.dtype)
    return factors.view(factors.shape + (1,) * (values.dim() - 1))
