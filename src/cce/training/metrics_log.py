"""The log of a run: one JSON line for everything that happened, and TensorBoard's files if wanted."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from cce.files import write_atomic

if TYPE_CHECKING:
    from pathlib import Path


class MetricsLog:
    """`metrics.jsonl` in the run's folder. A resumed run drops what came after the checkpoint it resumes from."""

    def __init__(self, folder: Path | None, *, step: int = 0, tensorboard: bool = False) -> None:
        self._board: Any = None
        if folder is None:
            return  # of all processes only one writes
        self.path = folder / "metrics.jsonl"
        kept = [line for line in read_metrics(self.path) if line["step"] <= step] if step else []
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        if tensorboard:
            self._board = _open_board(folder / "tensorboard", step)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One line. What is not a number becomes null, as JSON has no other word for it."""
        clean = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **clean}) + "\n")
        if self._board is not None:
            for name, value in clean.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Finish TensorBoard's files."""
        if self._board is not None:
            self._board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; the last may have been cut short by a kill."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def _open_board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("tensorboard must be installed: pip install 'clustered-embeddings[tensorboard]'.") from error
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
