"""TensorBoard: event files in the folder of the run. The only file that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger:
    """Scalars by name. A resumed run drops what came after the step it resumes from."""

    def __init__(self, folder: Path, step: int) -> None:
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step or None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write some scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish the files."""
        self._writer.close()
