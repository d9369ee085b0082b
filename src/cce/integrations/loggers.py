"""Where a run sends its log besides its own folder: TensorBoard, or a logger that a plug-in registers."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from cce.checks import check_choice
from cce.text import install_hint


class Logger(Protocol):
    """What a service must offer: values by name at a step, and an end."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send some numbers."""

    def close(self) -> None:
        """Send what is left."""


class TensorBoardLogger:
    """Scalars by name, in event files below the run's folder. A resumed run drops what came after its step."""

    def __init__(self, folder: Path, step: int, config: Mapping[str, Any]) -> None:
        del config
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            hint = install_hint("tensorboard")
            raise ValueError(f"logger must be installed, got 'tensorboard', which is not ({error}): {hint}.") from error
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step or None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write some scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish the files."""
        self._writer.close()


LOGGERS: dict[str, Callable[[Path, int, Mapping[str, Any]], Logger]] = {"tensorboard": TensorBoardLogger}


def register_logger(name: str, make: Callable[[Path, int, Mapping[str, Any]], Logger]) -> None:
    """Add a logger of your own: `make(folder, step, config)`, of the run's folder, the step that it goes on from and
    its options.
    """
    if name in LOGGERS:
        raise ValueError(f"name of a logger must be new, got {name!r}, which there is.")
    LOGGERS[name] = make


def open_logger(name: str, folder: Path, *, step: int = 0, config: Mapping[str, Any] | None = None) -> Logger:
    """The logger of a run, which writes below `folder`; a run that is resumed at `step` goes on with the same log."""
    check_choice("logger", name, LOGGERS)
    return LOGGERS[name](folder, step, config or {})


def finite_values(kind: str, values: Mapping[str, Any]) -> dict[str, float]:
    """What of a line of the log is a finite number, by name."""
    found = {name: value for name, value in values.items() if isinstance(value, int | float) and name != "step"}
    return {f"{kind}/{name}": float(value) for name, value in found.items() if math.isfinite(value)}
