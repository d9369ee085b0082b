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
from cce.optim import SGD, RowwiseAdagrad
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
OPTIMIZERS["sgd"], OPTIMIZERS["rowwise_adagrad"] = SGD, RowwiseAdagrad  # ours; the first gives the same bits as torch's
TABLES_ONLY = {"sparse_adam": "adam"}  # these take sparse gradients only: the rest of a model is trained by another


def create_optimizers(
    name: str, model: nn.Module, *, lr: float, weight_decay: float = 0.0, options: Mapping[str, Any] | None = None
) -> list[Optimizer]:
    """One optimizer for all parameters, or one for the tables and one for the rest."""
    check_choice("optimizer", name, sorted(OPTIMIZERS))
    arguments = {"lr": lr, **({"weight_decay": weight_decay} if weight_decay else {}), **(options or {})}
    if name not in TABLES_ONLY:
        return [_create(name, list(model.parameters()), arguments)]
    of_tables = {id(p) for table in model.modules() if isinstance(table, Embedding) for p in table.parameters()}
    tables = [parameter for parameter in model.parameters() if id(parameter) in of_tables]
    rest = [parameter for parameter in model.parameters() if id(parameter) not in of_tables]
    created = [_create(name, tables, arguments)]
    return [*created, _create(TABLES_ONLY[name], rest, arguments)] if rest else created


def _create(name: str, parameters: list[nn.Parameter], arguments: Mapping[str, Any]) -> Optimizer:
    kind = OPTIMIZERS[name]
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
