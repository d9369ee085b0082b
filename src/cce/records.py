"""What a finished run leaves behind: one JSON line, without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cce.files import read_text, write_atomic
from cce.footprint import Footprint


@dataclass(frozen=True)
class RunRecord:
    """One training run: its options, sizes, scores and durations."""

    method: str
    seed: int
    num_params: int  # of all tables
    nbytes: int  # of all tables, pointers included
    scores: dict[str, float]  # on the test rows, by metric; empty without them, NaN where a metric is not defined
    seconds: float  # all parts together
    config: dict[str, Any] = field(default_factory=dict)  # the options as they were given
    resolved: dict[str, Any] = field(default_factory=dict)  # the same, with everything decided
    curve: list[dict[str, float]] = field(default_factory=list)  # validations: step, epoch, and their scores
    samples_per_second: float = 0.0  # rows trained a second, without validation, clustering and saving
    seconds_by_part: dict[str, float] = field(default_factory=dict)
    peak_nbytes: dict[str, int] = field(default_factory=dict)  # measured, by phase: memory above that of no tables
    sizes: list[dict[str, Any]] = field(default_factory=list)  # to choose from when tables were finalized
    name: str = ""  # among the runs of a sweep
    series: str = ""  # the line of a plot that it is a point of; empty: its method's
    trained_as: str = ""  # the run of the sweep whose training it shares, finalized at another size; empty: its own
    tables: tuple[Footprint, ...] = ()
    events: list[dict[str, Any]] = field(default_factory=list)  # clusterings: step, table, churn, H1, H2, …
    environment: dict[str, Any] = field(default_factory=dict)  # commit, versions, machine
    curve_before_finalize: list[dict[str, float]] = field(default_factory=list)  # validations of int8 rows, by step

    @property
    def whole_curve(self) -> list[dict[str, float]]:
        """All validations in their order; those before tables were finalized are of another model than was tested."""
        return [*self.curve_before_finalize, *self.curve]

    @property
    def training_nbytes(self) -> int | None:
        """Bytes that all tables hold in training, at most; None without a memory summary.

        Records of before say nothing of gradients and clusterings: dense gradients are as large as the codebooks, and
        a clustering holds at least new pointers and codebooks.
        """
        if not self.tables:
            return None
        return sum(table.training_nbytes + self._untold_nbytes(table) for table in self.tables)

    def _untold_nbytes(self, table: Footprint) -> int:
        is_dense = not self.config.get("sparse") and table.method != "quantized" and not table.codes_nbytes
        gradients = table.codebook_nbytes if is_dense and not table.gradient_nbytes else 0
        is_clustered = any(event.get("table") == table.name for event in self.events)
        return gradients + (table.nbytes if is_clustered and not table.clustering_nbytes else 0)

    def to_dict(self) -> dict[str, Any]:
        tables = [table.to_dict() for table in self.tables]
        return asdict(self) | {"tables": tables, "training_nbytes": self.training_nbytes}

    def to_row(self) -> dict[str, Any]:
        """One flat line of a data frame: names, options that are single values, sizes, durations and test scores."""
        options = {name: value for name, value in self.config.items() if not isinstance(value, dict | list | tuple)}
        sizes = {name: getattr(self, name) for name in ("num_params", "nbytes", "seconds", "samples_per_second")}
        scores = {f"test_{name}": score for name, score in self.scores.items()}
        names = {"name": self.name, "series": self.series or self.method, "method": self.method, "seed": self.seed}
        return names | {name: value for name, value in options.items() if name not in names} | sizes | scores

    def to_json(self) -> str:
        """One line of strict JSON, where null stands for NaN."""
        return strict_json(self.to_dict())

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """The record that `to_json` wrote; a score that is null is NaN."""
        values = parse_strict_json(line)
        if not isinstance(values, dict):
            raise TypeError(f"a record must be a JSON object, got {line[:80]!r}.")
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        first = {name: values[name] for name in ("bce", "auc") if name in values}  # fields of the first format
        known["scores"] = _with_nan("scores", values.get("scores", first))
        for name in ("curve", "curve_before_finalize", "tables"):
            if not isinstance(known.setdefault(name, []), list):
                raise TypeError(f"{name} of a record must be a list, got {known[name]!r:.80}.")
        for name in ("curve", "curve_before_finalize"):
            known[name] = [_with_nan(f"a line of {name}", line) for line in known[name]]
        known["tables"] = tuple(_table(each) for each in known["tables"])
        required = (each.name for each in fields(cls) if each.default is each.default_factory is MISSING)
        if missing := [name for name in required if name not in known]:
            raise ValueError(f"a record must have {', '.join(missing)}, got none.")
        return cls(**known)


def strict_json(value: Any) -> str:
    """JSON in one line, with null for NaN and infinities, which JSON has no words for."""
    return json.dumps(_without_nan(value), allow_nan=False)


def parse_strict_json(text: str) -> Any:
    """The value of a JSON text; the bare words NaN and Infinity, which are not JSON, are rejected."""
    return json.loads(text, parse_constant=_reject_constant)


def _reject_constant(word: str) -> None:
    raise ValueError(f"JSON must hold null instead of non-finite numbers, got {word}.")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_nan(what: str, scores: Any) -> dict[str, float]:
    """Scores by name, NaN for null; rejects anything else."""
    if not isinstance(scores, dict) or not all(isinstance(value, int | float | None) for value in scores.values()):
        raise TypeError(f"{what} of a record must hold numbers by name, got {scores!r:.80}.")
    return {name: math.nan if value is None else value for name, value in scores.items()}


def _table(values: Any) -> Footprint:
    if not isinstance(values, dict):
        raise TypeError(f"a table of a record must be a JSON object, got {values!r:.80}.")
    return Footprint.from_dict(values)


def write_records(records: Iterable[RunRecord], path: Path) -> None:
    """A file of JSON lines, whole or not at all."""
    write_atomic(path, "".join(record.to_json() + "\n" for record in records))


def read_records(path: Path) -> list[RunRecord]:
    """The records of a file of JSON lines; a malformed line is rejected with its number."""
    records = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        try:
            records += [RunRecord.from_json(line)] if line.strip() else []
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} of {path} must be the record of a run: {error}") from error
    return records
