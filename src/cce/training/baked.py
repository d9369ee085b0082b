"""Training on a baked data set: pointers are fixed and lie in its rows; codebooks and the network train on."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from cce.collection import plan_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.schema import Feature, Schema
    from cce.training.config import TrainConfig

LEARNING = ("cluster_every", "cluster_at_epochs", "cluster_times", "refits", "learned_min_count", "unified")


def baked_config(config: TrainConfig, schema: Schema, method_options: Mapping[str, Any]) -> TrainConfig:
    """`config` without clusterings. One that would learn pointers, or has other tables than the baked, is rejected."""
    defaults = {each.name: each.default for each in fields(config)}
    given = {name: getattr(config, name) for name in LEARNING if getattr(config, name) != defaults[name]}
    if config.cluster_schedule not in ("auto", "none"):
        given["cluster_schedule"] = config.cluster_schedule
    for name, value in given.items():
        raise ValueError(f"{name} must be left out with baked data, whose pointers are fixed, got {value!r}.")
    _check_sizes(config, schema, method_options)
    return replace(config, cluster_schedule="none")


def _check_sizes(config: TrainConfig, schema: Schema, method_options: Mapping[str, Any]) -> None:
    """Reject a budget that gives other tables than those whose pointers were baked."""
    plan = plan_tables(
        schema.vocabulary_sizes,
        config.embedding_dim,
        method=config.method,
        budget=config.budget,
        options={config.method: method_options},
    )
    for feature, table in zip(schema.features, plan.tables, strict=True):
        num_params = _num_params(feature, config.embedding_dim)
        if table.num_params != num_params:
            what = f"method, budget and embedding_dim must be those of the baked run: the table of {feature.name!r}"
            raise ValueError(f"{what} has {num_params} parameters, got {table.num_params}.")


def _num_params(feature: Feature, embedding_dim: int) -> int:
    pointers = feature.pointers
    if pointers is None:
        return feature.num_embeddings * embedding_dim
    return pointers.num_terms * pointers.num_rows * embedding_dim
