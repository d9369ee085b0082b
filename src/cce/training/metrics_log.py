"""The log of a run: one JSON line for everything that happened, and TensorBoard's files if wanted."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from cce.files import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

LOG = "metrics.jsonl"
BEFORE_SAVING = ("train", "validation")  # what is logged after a step comes before its checkpoint; the rest after it


class MetricsLog:
    """`metrics.jsonl` in the run's folder. A resumed run drops what came after the checkpoint it resumes from."""

    def __init__(self, folder: Path | None, *, step: int = 0, tensorboard: bool = False) -> None:
        self._board: Any = None
        self.damage: list[str] = []  # lines that could not be read, and are dropped
        if folder is None:
            return  # of all processes only one writes
        self.path = folder / LOG
        lines, self.damage = scan_metrics(self.path)
        kept = [line for line in lines if _is_in_checkpoint(line, step)]
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        if tensorboard:
            self._open_board(folder / "tensorboard", step, kept)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One line. What is not a number becomes null, as JSON has no other word for it."""
        clean = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **clean}) + "\n")
        self._write_board(kind, step, clean)

    def close(self) -> None:
        """Finish TensorBoard's files."""
        if self._board is not None:
            self._board.close()

    def _open_board(self, folder: Path, step: int, kept: list[dict[str, Any]]) -> None:
        """TensorBoard can only drop whole steps: what is kept of the last one is written again."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            install = "pip install 'clustered-embeddings[tensorboard]'"
            raise ValueError(f"tensorboard must be installed: {install}.") from error
        self._board = SummaryWriter(str(folder), purge_step=step or None)
        for line in kept:
            if line["step"] == step:
                self._write_board(line["kind"], step, line)

    def _write_board(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self._board is not None:
            for name, value in values.items():
                if name != "step" and isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)


def _is_in_checkpoint(line: dict[str, Any], step: int) -> bool:
    """Whether a line was written before the checkpoint of this step; what came after it is about to happen again."""
    return bool(step) and (line["step"] < step or (line["step"] == step and line["kind"] in BEFORE_SAVING))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a damaged one is refused with its number. A kill may have cut the last one short."""
    lines, damage = scan_metrics(path)
    if damage:
        raise ValueError(damage[0])
    return lines


def scan_metrics(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of a log that can be read, and what is wrong with the others; a last line cut short is left out."""
    texts = path.read_bytes().split(b"\n") if path.exists() else []
    lines, damage = [], []
    for number, text in enumerate(texts, start=1):
        line = _read_line(text)
        if line is not None:
            lines.append(line)
        elif text.strip() and number < len(texts):  # what ends in a newline was written whole
            damage.append(f"line {number} of {path} must be JSON with a kind and a step, got {text[:40]!r}.")
    return lines, damage


def _read_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(line, dict) and isinstance(line.get("kind"), str) and type(line.get("step")) is int
    return line if is_ours else None
