"""What a finished run leaves behind: one JSON line, without torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cce.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class RunRecord:
    """One training run: what was asked, what it weighs, what it scored, how long it took."""

    method: str
    seed: int
    num_params: int  # of all tables
    nbytes: int  # of all tables, pointers included
    bce: float  # on the test rows
    auc: float
    seconds: float  # all parts together
    config: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)  # validations: step, epoch, bce, auc
    samples_per_second: float = 0.0  # rows trained a second, without validation, clustering and saving
    seconds_by_part: dict[str, float] = field(default_factory=dict)
    name: str = ""  # among the runs of a sweep
    series: str = ""  # the line of a plot that it is a point of; empty: its method's
    tables: list[dict[str, Any]] = field(default_factory=list)  # the ledger: a line for each table, see `summary`
    events: list[dict[str, Any]] = field(default_factory=list)  # clusterings: step, table, churn, H1, H2, …
    environment: dict[str, Any] = field(default_factory=dict)  # commit, versions, machine

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """The record that `to_json` wrote."""
        return cls(**json.loads(line))


def write_records(records: Iterable[RunRecord], path: Path) -> None:
    """A file of JSON lines, whole or not at all."""
    write_atomic(path, "".join(record.to_json() + "\n" for record in records))


def read_records(path: Path) -> list[RunRecord]:
    """The records of a file of JSON lines."""
    return [RunRecord.from_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
