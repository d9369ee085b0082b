"""The optimizer of a run, by name, and its learning rate at each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from cce.checks import check_choice
from cce.embeddings import Embedding, Finalizable
from cce.optim import SGD, Adagrad, Adam, AdamW

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "sgd": SGD}


def create_optimizer(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> Optimizer:
    """One optimizer for all parameters, int8 rows included.

    weight_decay: of the tables alone; 0 is none, whatever the optimizer's default is.
    options: further arguments; `row_lr`, the learning rate of int8 rows, goes with them.
    """
    check_choice("optimizer", name, OPTIMIZERS)
    arguments: dict[str, Any] = {"lr": lr, **(options or {}), "weight_decay": weight_decay}
    if not any(isinstance(module, Finalizable) and not module.is_final for module in model.modules()):
        arguments.pop("row_lr", None)
    of_tables = {id(p) for table in model.modules() if isinstance(table, Embedding) for p in table.parameters()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [{"params": trained}]
    if weight_decay:
        rest = [parameter for parameter in trained if id(parameter) not in of_tables]
        groups = [
            {"params": [parameter for parameter in trained if id(parameter) in of_tables]},
            {"params": rest, "weight_decay": 0.0},
        ]
    try:
        return OPTIMIZERS[name](groups, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        given = ", ".join(f"{argument}={value!r}" for argument, value in arguments.items())
        raise ValueError(f"optimizer {name!r} could not be made with {given}: {error}") from error


def set_learning_rate(optimizer: Optimizer, lr: float, step: int, *, schedule: str, total_steps: int) -> None:
    """Set the learning rate of step number `step`, counted from 0: constant, or falling to zero in a line or along a
    cosine. It follows from the step, so a resumed run has nothing to remember.
    """
    done = min(1.0, step / max(1, total_steps))
    falls = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    check_choice("schedule", schedule, falls)
    for group in optimizer.param_groups:
        group["lr"] = lr * falls[schedule]
