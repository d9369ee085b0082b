"""Repair of an optimizer's state and of averaged copies, after a clustering has given the rows another meaning.

Left alone, Adam would push a new centroid along the momentum of whatever row was there before, and Adagrad would
freeze a new helper row because of gradients it never had. An average over steps before and after a clustering means
nothing: averaged copies (EMA, SWA) of the clustered tables restart at the model's tables, and the rest is averaged on.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_choice, check_type
from cce.embeddings import Clusterable, ClusterEvent, RowTransfer

POLICIES = ("transfer", "reset", "keep")
SIGNED = ("momentum_buffer", "exp_avg")  # moments that point somewhere; the others say how large gradients are
WRAPPERS = ("module", "_orig_mod")  # what AveragedModel, DDP and torch.compile put into names


def repair_optimizer(optimizer: Optimizer, event: ClusterEvent, *, policy: str = "transfer") -> None:
    """Make the optimizer's state follow a clustering.

    transfer: a clustered row gets the mean state of the rows its ids came from, weighted by how many came. Helper rows
        restart: without momentum, and with the mean size of gradients that helper rows had.
    reset: all state of the parameter as at the beginning, step counters included.
    keep: nothing is touched, unless a parameter changed its shape.

    Works on any state tensor with a row for each row of the parameter, so on optimizers it has never seen.
    """
    check_choice("policy", policy, POLICIES)
    check_type("optimizer", optimizer, Optimizer, "a torch optimizer")
    check_type("event", event, ClusterEvent, "a ClusterEvent")
    for old, new in event.replaced.items():
        _replace_parameter(optimizer, old, new)
    transfer = event.transfer
    if transfer is None or transfer.parameter not in optimizer.state:
        return
    state = optimizer.state[transfer.parameter]
    resized = transfer.num_old_rows != transfer.parameter.shape[0]
    if policy == "transfer" or (policy == "keep" and resized):
        for name, value in state.items():
            if isinstance(value, Tensor) and value.dim() and len(value) == transfer.num_old_rows:
                moved = _transferred(name, value, transfer)
                state[name] = moved if value.is_sparse or value.shape != moved.shape else value.copy_(moved)
    elif policy == "reset":
        _restart(optimizer, transfer.parameter)


def _transferred(name: str, state: Tensor, transfer: RowTransfer) -> Tensor:
    """The new state, row by row of the parameter."""
    old = state.to_dense() if state.is_sparse else state
    moved = {field: getattr(transfer, field).to(old.device) for field in ("new_rows", "old_rows", "restarted")}
    counts = transfer.counts.to(old).view(-1, *[1] * (old.dim() - 1))
    points_somewhere = name in SIGNED or bool((old < 0).any())
    rest = torch.zeros_like(old[0]) if points_somewhere else old.mean(0)
    sums = old.new_zeros(transfer.parameter.shape[0], *old.shape[1:])
    sums.index_add_(0, moved["new_rows"], old[moved["old_rows"]] * counts)
    totals = old.new_zeros(len(sums), *counts.shape[1:]).index_add_(0, moved["new_rows"], counts)
    new = torch.where(totals > 0, sums / totals.clamp(min=1), rest)  # rows of no sampled id are like the average row
    if len(moved["restarted"]):
        had = old[transfer.old_restarted.to(old.device)]
        new[moved["restarted"]] = torch.zeros_like(had[0]) if points_somewhere else had.mean(0)
    return new


def _replace_parameter(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter | None) -> None:
    """Put `new` where `old` was, with the state of a parameter that was never stepped; None only takes `old` out."""
    group = _group_of(optimizer, old)
    if group is None:
        return
    optimizer.state.pop(old, None)
    at = next(index for index, parameter in enumerate(group["params"]) if parameter is old)
    group["params"][at : at + 1] = [] if new is None else [new]
    if new is not None:
        _restart(optimizer, new)


def _restart(optimizer: Optimizer, parameter: nn.Parameter) -> None:
    """Reset the state of `parameter`. Optimizers that create state at construction (Adagrad) create it again."""
    optimizer.state.pop(parameter, None)
    group = _group_of(optimizer, parameter) or {}
    settings = {name: group.get(name, default) for name, default in optimizer.defaults.items()}
    try:
        fresh = type(optimizer)([parameter], **settings)
    except TypeError:  # a constructor of another form: state then comes with the first step
        return
    if fresh.state.get(parameter):
        optimizer.state[parameter] = fresh.state[parameter]


def _group_of(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any] | None:
    for group in optimizer.param_groups:
        if any(each is parameter for each in group["params"]):
            return group
    return None


def restart_average(averaged: nn.Module, model: nn.Module) -> None:
    """Restart the clusterable tables of `averaged` from those of `model`: rows, pointers and hash functions."""
    for copy, table in paired_tables(averaged, model):
        copy.load_state_dict(table.state_dict())


def paired_tables(averaged: nn.Module, model: nn.Module) -> list[tuple[Clusterable, Clusterable]]:
    """The clusterable tables of both, by name, whatever wraps them (AveragedModel, DDP, torch.compile)."""
    check_type("averaged", averaged, nn.Module, "a torch.nn.Module")
    check_type("model", model, nn.Module, "a torch.nn.Module")
    copies, tables = _tables_by_name(averaged), _tables_by_name(model)
    missing = sorted(set(tables) - set(copies))
    if missing:
        raise ValueError(f"averaged must be a copy of the model, but it has no table {missing[0]!r}.")
    return [(copies[name], table) for name, table in tables.items()]


def _tables_by_name(model: nn.Module) -> dict[str, Clusterable]:
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, Clusterable):
            found[".".join(part for part in path.split(".") if part not in WRAPPERS)] = module
    return found
