"""Training of a model whose tables are clustered on the way: configuration, loop, checkpoints.

Names are loaded when they are first used: the options of a run can be listed without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.training.building import count_ids
    from cce.training.checkpoint import Checkpoint, DamagedCheckpointError, list_checkpoints, open_checkpoint
    from cce.training.config import MAY_CHANGE, TrainConfig
    from cce.training.inspection import inspect_checkpoint, verify_run
    from cce.training.loading import load_model, read_schema
    from cce.training.options import check_names, make_config, parse_pairs, read_toml
    from cce.training.planning import RunPlan, plan_run
    from cce.training.random_numbers import kept_random_state
    from cce.training.scoring import Scores, group_column, score
    from cce.training.stopping import DivergedError
    from cce.training.trainer import Trainer

_HOMES = {
    "building": ("count_ids",),
    "checkpoint": ("Checkpoint", "DamagedCheckpointError", "list_checkpoints", "open_checkpoint"),
    "config": ("MAY_CHANGE", "TrainConfig"),
    "inspection": ("inspect_checkpoint", "verify_run"),
    "loading": ("load_model", "read_schema"),
    "options": ("check_names", "make_config", "parse_pairs", "read_toml"),
    "planning": ("RunPlan", "plan_run"),
    "scoring": ("Scores", "group_column", "score"),
    "random_numbers": ("kept_random_state",),
    "stopping": ("DivergedError",),
    "trainer": ("Trainer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "MAY_CHANGE",
    "Checkpoint",
    "DamagedCheckpointError",
    "DivergedError",
    "RunPlan",
    "Scores",
    "TrainConfig",
    "Trainer",
    "check_names",
    "count_ids",
    "group_column",
    "inspect_checkpoint",
    "kept_random_state",
    "list_checkpoints",
    "load_model",
    "make_config",
    "open_checkpoint",
    "parse_pairs",
    "plan_run",
    "read_schema",
    "read_toml",
    "score",
    "verify_run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cce.training' has no attribute {name!r}")
    return getattr(import_module(f"cce.training.{_HOME_OF[name]}"), name)
