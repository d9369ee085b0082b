"""What is to be prepared from what, and how: plain values, without numpy or pyarrow."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cce.checks import check_choice, check_range
from cce.data.prepare.inputs import BLOCK_BYTES, Input
from cce.workers import num_cores

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cce.data.prepare.columns import Columns, Reading

WAYS = {  # to split rows, with the options that each uses
    "random": ("validation", "test", "seed"),
    "order": ("validation", "test"),
    "last-file": (),
    "temporal": ("validation", "test"),
    "column": ("column", "validation_values", "test_values"),
    "last-two": (),
    "files": (),
    "none": (),
}


@dataclass(frozen=True)
class Splitting:
    """How rows are held out; `split.py` has the meaning of each way."""

    way: str = "random"
    validation: float = 0.1  # share of the rows
    test: float = 0.1
    seed: int = 0
    column: str | None = None
    validation_values: tuple[str, ...] = ()
    test_values: tuple[str, ...] = ()
    of_files: tuple[str, ...] = ()  # the split of each input

    def __post_init__(self) -> None:
        check_choice("split", self.way, WAYS)
        check_range("seed", self.seed, 0, 2**63)
        if not (self.validation >= 0 and self.test >= 0 and self.validation + self.test < 1):
            shares = f"{self.validation} and {self.test}"
            raise ValueError(f"validation and test must be shares that leave rows to train on, got {shares}.")
        if self.way == "column" and self.column is None:
            raise ValueError("split_column must be given to split by column.")

    def adjusted(self, way: str | None, given: Mapping[str, Any]) -> Splitting:
        """Split another `way`, or with other options; options that have no effect are rejected."""
        base = self if way is None else Splitting(way, column=given.get("column"))
        unused = [name for name in given if name not in WAYS[base.way]]
        if unused:
            name = "split_column" if unused[0] == "column" else unused[0]
            raise ValueError(f"{name} must be left out with split {base.way!r}, got {given[unused[0]]!r}.")
        return replace(base, **given)


@dataclass(frozen=True)
class VocabularyRule:
    """Which values get their own id."""

    min_count: int = 1
    max_ids: int | None = None  # besides 0
    source: str = "train"  # or "all": the rows that are counted
    hash_bits: int | None = None  # ids are hashes of so many bits, and nothing is counted

    def __post_init__(self) -> None:
        check_range("min_count", self.min_count, 1, 2**63)
        check_choice("vocabulary_from", self.source, ("train", "all"))
        if self.max_ids is not None:
            check_range("max_ids", self.max_ids, 1, 2**63)
        if self.hash_bits is not None:
            check_range("hash_ids", self.hash_bits, 1, 49)
            if (self.min_count, self.max_ids, self.source) != (1, None, "train"):
                raise ValueError("hash_ids counts nothing: leave out min_count, max_ids and vocabulary_from.")


@dataclass(frozen=True)
class Job:
    """One data set to be prepared."""

    kind: str  # the name of its source
    inputs: tuple[Input, ...]
    columns: Columns
    reading: Reading
    splitting: Splitting = field(default_factory=Splitting)
    rule: VocabularyRule = field(default_factory=VocabularyRule)
    max_bad_rows: int = 0
    reuse_vocabulary: Path | None = None  # a data set whose ids are used
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        check_range("max_bad_rows", self.max_bad_rows, 0, 2**63)
        if not self.inputs:
            raise ValueError("raw must hold at least one file, got none.")
        names, used = self.reading.names, self.columns_read.used
        for name in used:
            if name not in names:
                raise ValueError(f"{self.inputs[0]} must have a column {name!r}; it has {', '.join(names)}.")
            if names.count(name) > 1:
                raise ValueError(f"{self.inputs[0]} must have one column {name!r}, got {names.count(name)}.")

    @property
    def columns_read(self) -> Columns:
        """The columns that are read, those of the split among them."""
        return self.columns.for_split(self.splitting.way, self.splitting.column)

    def useful_jobs(self) -> int:
        """One process per core, but none for less than 64 MB: each takes a second to start."""
        size = sum(path.stat().st_size for path in {input_.path for input_ in self.inputs} if path.exists())
        return max(1, min(num_cores(), size >> 26))

    def key(self, reused: object = None) -> str:
        """Everything on which the result depends: a preparation with another key begins again."""
        files = [(str(input_), input_.path.stat().st_size, input_.path.stat().st_mtime_ns) for input_ in self.inputs]
        return json.dumps([files, reused, asdict(self)], default=str, indent=1)
