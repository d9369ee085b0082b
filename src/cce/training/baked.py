"""Training on a baked data set: pointers are fixed and lie in its rows; codebooks and the network train on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.data import PreparedData
    from cce.training.config import TrainConfig

LEARNING = (
    *("cluster_every", "cluster_at_epochs", "cluster_times", "code_bits", "refits"),
    *("learned_min_count", "num_learned", "unified"),
)
OF_TABLES = (
    *("method", "method_options", "preset", "embedding_dim"),
    *("cap", "num_params", "nbytes", "compression", "budget_rule"),
)


def table_options(config: TrainConfig) -> dict[str, Any]:
    """The options that made the tables of a run: those that a run on its baked data set must have, too."""
    return {name: getattr(config, name) for name in OF_TABLES}


def baked_config(config: TrainConfig, data: PreparedData) -> TrainConfig:
    """`config` without clusterings and refits. One that would learn pointers, or has other tables, is rejected."""
    given = {name: getattr(config, name) for name in LEARNING if getattr(config, name)}
    if config.cluster_schedule not in ("auto", "none"):
        given["cluster_schedule"] = config.cluster_schedule
    for name, value in given.items():
        raise ValueError(f"{name} must be left out with baked data, whose pointers are fixed, got {value!r}.")
    baked = data.manifest.get("run", {}).get("options", {})
    for name, value in table_options(config).items():
        if value != baked.get(name):
            rule = f"must be that of the run whose pointers {data.path} holds, {baked.get(name)!r}"
            raise ValueError(f"{name} {rule}, got {value!r}.")
    return replace(config, code_bits=0, refits=0, cluster_schedule="none")
