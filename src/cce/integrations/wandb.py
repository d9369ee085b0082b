"""Weights & Biases. The only file that imports it. Its own variables, such as WANDB_MODE, say what it sends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from cce.files import write_atomic

NAME = "wandb.json"  # in the folder of the run: which run of theirs it is


class WandbLogger:
    """A run of theirs, which a resumed run of ours goes on with."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        known = folder / NAME
        identity = json.loads(known.read_text())["id"] if known.exists() else None
        self._run: Any = wandb.init(
            dir=str(folder),
            name=folder.name,
            id=identity,
            resume="allow",
            config=config,
            settings={"console": "off", "silent": True},
        )
        write_atomic(known, json.dumps({"id": self._run.id}))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send some numbers; of a step that was sent before, theirs keeps the first."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


def open_logger(folder: Path, *, step: int, config: dict[str, Any]) -> WandbLogger:
    """The run of a folder."""
    del step
    return WandbLogger(folder, config)
