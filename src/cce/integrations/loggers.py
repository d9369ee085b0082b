"""Where a run sends its log besides its own folder. A logger is a module with `open_logger`, and a line here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from cce.checks import check_choice
from cce.text import install_hint

LOGGERS = ("tensorboard", "wandb", "mlflow")


class Logger(Protocol):
    """What a service must offer: numbers by name at a step, and an end."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send some numbers."""

    def close(self) -> None:
        """Send what is left."""


def open_logger(name: str, folder: Path, *, step: int = 0, config: Mapping[str, Any] | None = None) -> Logger:
    """The logger of a run, which writes below `folder`; a run that is resumed at `step` goes on with the same log."""
    check_choice("logger", name, LOGGERS)
    try:
        module = import_module(f"cce.integrations.{name}")
    except ImportError as error:
        hint = install_hint(name)
        raise ValueError(f"logger must be installed, got {name!r}, which is not ({error}): {hint}.") from error
    opened: Logger = module.open_logger(folder, step=step, config=dict(config or {}))
    return opened


def numbers_of(kind: str, values: Mapping[str, Any]) -> dict[str, float]:
    """What of a line of the log is a finite number, by name."""
    found = {name: value for name, value in values.items() if isinstance(value, int | float) and name != "step"}
    return {f"{kind}/{name}": float(value) for name, value in found.items() if math.isfinite(value)}
