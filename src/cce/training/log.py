"""The log of a run: one JSON line for everything that happens, and TensorBoard's files if requested."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from cce.embeddings import ClusterEvent
    from cce.run_folder import RunFolder


class MetricsLog:
    """The log in the run's folder. A resumed run drops what came after the checkpoint it resumes from."""

    def __init__(self, folder: RunFolder | None, *, step: int = 0, tensorboard: bool = False) -> None:
        self.folder = folder  # of all processes only one writes
        self.damage: list[str] = []  # lines that could not be read, and are dropped
        self._board: Any = None
        if folder is None:
            return
        if tensorboard:
            self._board = _open_board(folder.path / "tensorboard", step)
        kept, self.damage = folder.cut_log(step)
        for line in kept if step else ():
            if line["step"] == step:  # TensorBoard drops whole steps: the remaining lines of this one are written again
                self._write_board(line["kind"], step, line)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One line; nothing where another process writes."""
        if self.folder is not None:
            self.folder.append_log({"kind": kind, "step": step, **values})
            self._write_board(kind, step, values)

    def close(self) -> None:
        """Finish TensorBoard's files."""
        if self._board is not None:
            self._board.close()

    def _write_board(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self._board is not None:
            for name, value in values.items():
                if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                    self._board.add_scalar(f"{kind}/{name}", value, step)


def _open_board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("tensorboard must be installed: pip install 'clustered-embeddings[tensorboard]'.") from error
    return SummaryWriter(str(folder), purge_step=step or None)


def event_values(event: ClusterEvent) -> dict[str, Any]:
    """What the log says about the clustering of a table."""
    entropies = {f"H{order}": value for order, value in enumerate(event.entropies_after, start=1)}
    values = {"num_ids": event.num_ids, "churn": event.churn, "dead_rows": event.dead_rows}
    return values | {"moved": event.moved, "seconds": event.total_seconds, **entropies}
