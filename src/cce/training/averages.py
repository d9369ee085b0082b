"""Averaged copies of a model (EMA, SWA) and clustering.

After a clustering a row means something else, so an average over steps before and after it means nothing. The rule:
at a clustering the averaged copies of the clustered tables restart at the model's tables. The rest of the model, whose
weights keep their meaning, goes on being averaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim.swa_utils import AveragedModel

from cce.embeddings import Clusterable, Embedding

if TYPE_CHECKING:
    from torch import nn


def restart_average(averaged: nn.Module, model: nn.Module) -> None:
    """Let the clusterable tables of `averaged` restart at those of `model`: rows, pointers and hash functions."""
    copies = averaged.module if isinstance(averaged, AveragedModel) else averaged
    for name, table in model.named_modules():
        if isinstance(table, Clusterable) and isinstance(table, Embedding):
            copies.get_submodule(name).load_state_dict(table.state_dict())
