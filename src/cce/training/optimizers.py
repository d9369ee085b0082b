"""Optimizers by name, which parameters each of them takes, and the learning rate at each step."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from cce.checks import check_choice
from cce.embeddings import Embedding, Finalizable
from cce.optim import SGD, Adagrad, Adam, AdamW


def _snake(name: str) -> str:
    known = {"ASGD": "asgd", "LBFGS": "lbfgs", "NAdam": "nadam", "RAdam": "radam", "RMSprop": "rmsprop", "SGD": "sgd"}
    known |= {"AdamW": "adamw"}
    return known.get(name, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


OPTIMIZERS: dict[str, type[Optimizer]] = {
    _snake(name): kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind not in (Optimizer, torch.optim.LBFGS)
}
WITH_INT8_ROWS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "sgd": SGD}
TABLES_ONLY = {"sparse_adam": "adam"}  # these take sparse gradients only: the rest of a model is trained by another


def create_optimizers(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> list[Optimizer]:
    """One optimizer for all parameters, int8 rows included, or one for the tables and one for the rest.

    weight_decay: of the tables.
    options: further arguments; `row_lr`, the learning rate of int8 rows, goes with them.
    """
    check_choice("optimizer", name, sorted(OPTIMIZERS))
    arguments: dict[str, Any] = {"lr": lr, **(options or {})}
    kinds = dict(OPTIMIZERS)
    if any(isinstance(module, Finalizable) and not module.is_final for module in model.modules()):
        check_choice("optimizer of int8 rows", name, WITH_INT8_ROWS)
        kinds |= WITH_INT8_ROWS
    else:
        arguments.pop("row_lr", None)
    of_tables = {id(p) for table in model.modules() if isinstance(table, Embedding) for p in table.parameters()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    tables = [parameter for parameter in trained if id(parameter) in of_tables]
    rest = [parameter for parameter in trained if id(parameter) not in of_tables]
    if name in TABLES_ONLY:
        parts = ((name, tables, weight_decay), (TABLES_ONLY[name], rest, 0.0))
        return [_create(kinds[kind], kind, some, decay, arguments) for kind, some, decay in parts if some]
    if not weight_decay or not tables:
        return [_create(kinds[name], name, trained, 0.0, arguments)]
    groups = [{"params": tables}, {"params": rest, "weight_decay": 0.0}]
    return [_create(kinds[name], name, groups, weight_decay, arguments)]


def _create(
    kind: type[Optimizer], name: str, parameters: list[Any], weight_decay: float, arguments: Mapping[str, Any]
) -> Optimizer:
    """An optimizer; a decay of 0 is none, whatever the optimizer's default is."""
    known = [parameter for parameter in _parameters_of(kind) if parameter != "params"]
    if weight_decay or "weight_decay" in known:
        arguments = {**arguments, "weight_decay": weight_decay}
    for argument in arguments:
        if argument not in known:
            raise ValueError(f"optimizer {name!r} has no option {argument!r}; its options are {', '.join(known)}.")
    try:
        return kind(parameters, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        given = ", ".join(f"{argument}={value!r}" for argument, value in arguments.items())
        raise ValueError(f"optimizer {name!r} could not be made with {given}: {error}") from error


def _parameters_of(kind: type[Optimizer]) -> list[str]:
    """The arguments of an optimizer, and of those that it extends."""
    found = (each for base in kind.__mro__[:3] for each in inspect.signature(base).parameters.values())
    return list(dict.fromkeys(each.name for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)))


def set_learning_rate(
    optimizers: Iterable[Optimizer], lr: float, step: int, *, schedule: str, total_steps: int
) -> None:
    """Set the learning rate of step number `step`, counted from 0: constant, or falling to zero in a line or along a
    cosine. It follows from the step, so a resumed run has nothing to remember.
    """
    done = min(1.0, step / max(1, total_steps))
    falls = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    check_choice("schedule", schedule, falls)
    lr *= falls[schedule]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
