"""Optimizers by name: all of torch's, and which parameters each of them takes."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from cce.checks import check_choice
from cce.embeddings import Embedding
from cce.optim import SGD, RowwiseAdagrad

if TYPE_CHECKING:
    from collections.abc import Mapping

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
