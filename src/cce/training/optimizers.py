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
from cce.optim import SGD, LazyAdam, PointerDescent, RowwiseAdagrad, has_codes
from cce.training.config import LR_SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from cce.distributed import Ranks


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
LIKE_ADAM = ("adam", "adamw", "adamax", "nadam", "radam", "lazy_adam", "sparse_adam")  # a step is of the size of lr
CODE_LR = 0.003  # where the learning rate is that of another kind of step
TABLES_ONLY = {"sparse_adam": "adam"}  # these take sparse gradients only: the rest of a model is trained by another


def create_optimizers(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    code_lr: float | None = None,
    weight_decay: float = 0.0,
    network_weight_decay: float = 0.0,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    ranks: Ranks | None = None,
) -> list[Optimizer]:
    """One optimizer for all parameters, or one for the tables and one for the rest; another for codes, if there are.

    code_lr: of codes, if it is not `default_code_lr`.
    weight_decay: of the tables; network_weight_decay: of the rest.
    seed, ranks: for codes, which are rounded at random, and of which the optimizer itself adds up the gradients.
    """
    check_choice("optimizer", name, sorted(OPTIMIZERS))
    codes: list[Optimizer] = []
    if has_codes(model):
        own = default_code_lr(name, lr) if code_lr is None else code_lr
        codes = [PointerDescent(model, own, weight_decay=weight_decay, seed=seed, ranks=ranks)]
    decays = (weight_decay, network_weight_decay)
    return [*_create_all(name, model, decays, {"lr": lr, **(options or {})}), *codes]


def default_code_lr(name: str, lr: float) -> float:
    """The learning rate of codes beside an optimizer: its own, if its steps are as those of codes."""
    return lr if name in LIKE_ADAM else CODE_LR


def _create_all(
    name: str, model: nn.Module, decays: tuple[float, float], arguments: Mapping[str, Any]
) -> list[Optimizer]:
    """Those of all that requires gradients, which scales of codes do not; `decays` are of the tables and the rest."""
    of_tables = {id(p) for table in model.modules() if isinstance(table, Embedding) for p in table.parameters()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    tables = [parameter for parameter in trained if id(parameter) in of_tables]
    rest = [parameter for parameter in trained if id(parameter) not in of_tables]
    if name in TABLES_ONLY:
        kinds = (name, TABLES_ONLY[name])
        parts = zip(kinds, (tables, rest), decays, strict=True)
        return [_create(kind, some, decay, arguments) for kind, some, decay in parts if some]
    if decays[0] == decays[1] or not tables:
        return [_create(name, trained, decays[1], arguments)]
    groups = [{"params": tables}, {"params": rest, "weight_decay": decays[1]}]
    return [_create(name, groups, decays[0], arguments, decays=True)]


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


def set_learning_rate(optimizers: Iterable[Optimizer], lr: float, code_lr: float | None = None) -> None:
    """Set the learning rate of every group. It follows from the step, so a resumed run has nothing to remember."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr if code_lr is None or not isinstance(optimizer, PointerDescent) else code_lr
