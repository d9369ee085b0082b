"""Training of a model whose tables are clustered on the way: configuration, loop, checkpoints.

Names are loaded when they are first used: the options of a run can be listed without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.training.config import TrainConfig
    from cce.training.trainer import Trainer

__all__ = ["TrainConfig", "Trainer"]

_HOMES = {"TrainConfig": "config", "Trainer": "trainer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cce.training' has no attribute {name!r}")
    return getattr(import_module(f"cce.training.{_HOMES[name]}"), name)
