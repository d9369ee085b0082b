"""Optimizers by name, which parameters each of them takes, and the learning rate at each step."""

from __future__ import annotations

import inspect
import math
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from cce.checks import check_choice
from cce.embeddings import Embedding
from cce.optim import SGD, LazyAdam, RowwiseAdagrad
from cce.training.config import LR_SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn


def _snake(name: str) -> str:
    known = {"ASGD": "asgd", "LBFGS": "lbfgs", "NAdam": "nadam", "RAdam": "radam", "RMSprop": "rmsprop", "SGD": "sgd"}
    known |= {"AdamW": "adamw"}
    return known.get(name, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


OPTIMIZERS: dict[str, type[Optimizer]] = {
    _snake(name): kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind not in (Optimizer, torch.optim.LBFGS)
}
OPTIMIZERS |= {"sgd": SGD, "rowwise_adagrad": RowwiseAdagrad, "lazy_adam": LazyAdam}  # ours
TABLES_ONLY = {"sparse_adam": "adam"}  # these take sparse gradients only: the rest of a model is trained by another


def create_optimizers(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    network_weight_decay: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> list[Optimizer]:
    """One optimizer for all parameters, or one for the tables and one for the rest.

    weight_decay: of the tables; network_weight_decay: of the rest.
    """
    check_choice("optimizer", name, sorted(OPTIMIZERS))
    arguments = {"lr": lr, **(options or {})}
    of_tables = {id(p) for table in model.modules() if isinstance(table, Embedding) for p in table.parameters()}
    tables = [parameter for parameter in model.parameters() if id(parameter) in of_tables]
    rest = [parameter for parameter in model.parameters() if id(parameter) not in of_tables]
    if name in TABLES_ONLY:
        created = [_create(name, tables, weight_decay, arguments)]
        return [*created, _create(TABLES_ONLY[name], rest, network_weight_decay, arguments)] if rest else created
    if weight_decay == network_weight_decay:
        return [_create(name, list(model.parameters()), weight_decay, arguments)]
    groups = [{"params": tables}, {"params": rest, "weight_decay": network_weight_decay}]
    return [_create(name, groups, weight_decay, arguments, decays=True)]


def _create(
    name: str, parameters: list[Any], weight_decay: float, arguments: Mapping[str, Any], *, decays: bool = False
) -> Optimizer:
    """An optimizer; `decays` says that some group has weight decay. 0 is none, whatever the optimizer's default is."""
    kind = OPTIMIZERS[name]
    if decays or weight_decay or "weight_decay" in inspect.signature(kind).parameters:
        arguments = {**arguments, "weight_decay": weight_decay}
    known = [parameter for parameter in inspect.signature(kind).parameters if parameter != "params"]
    for argument in arguments:
        if argument not in known:
            raise ValueError(f"optimizer {name!r} has no option {argument!r}; its options are {', '.join(known)}.")
    try:
        return kind(parameters, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        given = ", ".join(f"{argument}={value!r}" for argument, value in arguments.items())
        raise ValueError(f"optimizer {name!r} could not be made with {given}: {error}") from error


def learning_rate_factor(step: int, *, schedule: str, warmup_steps: int, total_steps: int) -> float:
    """What the learning rate is multiplied by at step number `step`, counted from 0.

    A linear warm-up, then constant, or falling to zero in a line or along a cosine.
    """
    check_choice("schedule", schedule, LR_SCHEDULES)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    done = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


def set_learning_rate(optimizers: Iterable[Optimizer], lr: float) -> None:
    """Set the learning rate of every group. It follows from the step, so a resumed run has nothing to remember."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
