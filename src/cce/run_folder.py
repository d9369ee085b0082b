"""The folder of a run: the names of its files, and how its log and its record are written and read (no torch).

config.toml       the options, as they were resolved
metrics.jsonl     the log: a JSON object a line, with a kind and a step
checkpoints/      step-…, a folder for each
record.jsonl      the finished run
error.txt         why the run failed, if a sweep ran it
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cce.files import lock_folder, write_atomic
from cce.records import RunRecord, read_records, strict_json, write_records

CONFIG, LOG, CHECKPOINTS, RECORD, ERROR = "config.toml", "metrics.jsonl", "checkpoints", "record.jsonl", "error.txt"
RECIPE, RECORDS = "recipe.toml", "records.jsonl"  # of a sweep, beside its runs
TRIALS = "tune"  # the folder of the runs that options were chosen by, inside that of a sweep
# what is logged after a step comes before its checkpoint; the rest after it
BEFORE_SAVING = ("train", "validation", "ids")


class RunFolder:
    """One run on disk. It is begun when it has a configuration, and finished when it has a record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.log, self.record, self.error = (path / name for name in (CONFIG, LOG, RECORD, ERROR))
        self.checkpoints = path / CHECKPOINTS

    @property
    def is_begun(self) -> bool:
        """Whether there is something to resume."""
        return self.config.exists()

    @property
    def is_finished(self) -> bool:
        """Whether its record is there; nothing else says so."""
        return self.record.exists()

    def lock(self, *, wait: bool = False) -> AbstractContextManager[None]:
        return lock_folder(self.path, wait=wait)

    def write_record(self, record: RunRecord) -> None:
        write_records([record], self.record)

    def read_record(self) -> RunRecord:
        """The record; one that cannot be read is rejected with the name of its file."""
        try:
            (record,) = read_records(self.record)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.record} must hold the record of a run: {' '.join(str(error).split())}") from error
        return record

    def append_log(self, line: dict[str, Any]) -> None:
        """Write one line. What is not finite becomes null, as JSON has no other word for it."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(strict_json(line) + "\n")

    def cut_log(self, step: int) -> tuple[list[dict[str, Any]], list[str]]:
        """Keep what was logged before the checkpoint of this step, at once; what came after is about to happen again.

        Gives the lines that are kept, and what was wrong with lines that could not be read.
        """
        lines, damage = self.scan_log()
        before = [line for line in lines if line["step"] - (line["kind"] in BEFORE_SAVING) < step]
        kept = before if step else []
        write_atomic(self.log, "".join(json.dumps(line) + "\n" for line in kept))
        return kept, damage

    def scan_log(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The lines that can be read, and what is wrong with the others; a last line cut short is left out."""
        texts = self.log.read_bytes().split(b"\n") if self.log.exists() else []
        lines, damage = [], []
        for number, text in enumerate(texts, start=1):
            line = _parse_line(text)
            if line is not None:
                lines.append(line)
            elif text.strip() and number < len(texts):  # what ends in a newline was written whole
                damage.append(f"line {number} of {self.log} must be JSON with a kind and a step, got {text[:40]!r}.")
        return lines, damage


def _parse_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(line, dict) and isinstance(line.get("kind"), str) and type(line.get("step")) is int
    return line if is_ours else None
