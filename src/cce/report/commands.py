"""The exact command that runs a configuration again: only what differs from the defaults is written."""

from __future__ import annotations

import json
import shlex
from dataclasses import MISSING, fields
from typing import Any

from cce.training.config import TrainConfig


def train_command(config: dict[str, Any]) -> str:
    """`cce train DATA --method …`, ready for a shell."""
    words = ["cce", "train", str(config.get("data", "DATA"))]
    for each in fields(TrainConfig):
        if each.name == "data" or each.name not in config:
            continue
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        value = config[each.name]
        if each.name == "method" or (value is not None and value != default):
            words += _words(each.name.replace("_", "-"), value)
    return shlex.join(words)


def sweep_command(recipe: str) -> str:
    """`cce sweep RECIPE`."""
    return shlex.join(["cce", "sweep", recipe])


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict):
        return [f"--{name}", *(f"{key}={_toml(item)}" for key, item in value.items())]
    return [f"--{name}", str(value)]


def _toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
