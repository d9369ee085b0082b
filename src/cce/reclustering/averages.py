"""Averaged copies of a model (EMA, SWA) and clustering.

After a clustering a row means something else, so an average over steps before and after it means nothing. The rule:
at a clustering the averaged copies of the clustered tables restart at the model's tables. The rest of the model, whose
weights keep their meaning, is still averaged.
"""

from __future__ import annotations

from torch import nn

from cce.checks import check_type
from cce.embeddings import Clusterable

WRAPPERS = ("module", "_orig_mod")  # what AveragedModel, DDP and torch.compile put into names


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
