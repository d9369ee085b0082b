"""What is to be prepared from what, and how: plain values, without numpy or pyarrow, that every worker is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cce.checks import check_choice, check_range
from cce.data.raw_files import BLOCK_BYTES, Input, check_columns
from cce.workers import num_cores

OPEN_BITS = 64  # of hashes that are ids as they are, without a bound
SAMPLES = ("all", "rows", "negatives")
TRANSFORMS = ("log", "standard", "identity")  # of dense columns


@dataclass(frozen=True)
class Columns:
    """The columns of a raw file by name."""

    label: str | None  # None where only the inputs of a model are read
    categorical: tuple[str, ...]
    dense: tuple[str, ...] = ()
    multi_hot: tuple[str, ...] = ()  # they come after the categorical ones
    weight: str | None = None
    timestamp: str | None = None  # read where rows are split by time, or none is held out
    user: str | None = None  # whose last rows are held out; read only where they are

    def __post_init__(self) -> None:
        if not self.features:
            raise ValueError("categorical must name at least one column, got none.")
        inputs = (*self.features, *self.dense)
        twice = [name for name in inputs if inputs.count(name) > 1]
        if twice:
            raise ValueError(f"categorical, multi_hot and dense must name a column once, got {twice[0]!r} twice.")
        if self.label is not None and self.label in (*inputs, self.weight):
            raise ValueError(f"label must be no feature, dense column or weight as well, got {self.label!r}.")

    def for_split(self, way: str) -> Columns:
        """The columns that are read where rows are split this way."""
        needed = {"temporal": ("timestamp",), "last-two": ("timestamp", "user")}.get(way, ())
        for role in needed:
            if getattr(self, role) is None:
                raise ValueError(f"{role} must name a column to split {way!r}, got none.")
        return replace(
            self,
            timestamp=self.timestamp if "timestamp" in needed or way == "none" else None,
            user=self.user if "user" in needed else None,
        )

    @property
    def inputs(self) -> Columns:
        """The columns that a model reads: no label, no weight, nothing that rows are split by."""
        return replace(self, label=None, weight=None, timestamp=None, user=None)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features, in the order of a batch."""
        return (*self.categorical, *self.multi_hot)

    @property
    def numbers(self) -> dict[str, str]:
        """Numeric columns other than the dense ones, by role."""
        roles = {"label": self.label, "weight": self.weight, "timestamp": self.timestamp, "user": self.user}
        return {role: name for role, name in roles.items() if name is not None}

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        return tuple(dict.fromkeys((*self.numbers.values(), *self.dense, *self.features)))


@dataclass(frozen=True)
class Reading:
    """How raw rows become rows."""

    names: tuple[str, ...] = ()  # of all columns of a file, in order
    delimiter: str = "\t"
    quoted: bool = False
    has_header: bool = False
    missing: tuple[str, ...] = ("",)
    separator: str = "|"  # between the values of a multi-hot column
    is_hex: bool = False  # values of categorical columns are hexadecimal words
    modulus: int | None = None  # of those words
    transforms: tuple[tuple[str, str], ...] = ()  # of dense columns by name, one of TRANSFORMS; others take the log
    scales: tuple[tuple[str, float, float], ...] = ()  # mean and deviation of standard columns, once they are known
    threshold: float | None = None  # a label is 1 from here on; as it is if None
    drop_label: float | None = None  # rows with this label are left out, and counted
    sample: str = "all"
    keep: float = 1.0  # the share of rows (or of negative rows) that is kept
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("sample", self.sample, SAMPLES)
        check_range("seed", self.seed, 0, 2**63)
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must lie in (0, 1], got {self.keep}.")
        for name in ("threshold", "drop_label"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}.")
        for name, transform in self.transforms:
            check_choice(f"transform of dense column {name!r}", transform, TRANSFORMS)
        if not self.separator:
            raise ValueError("separator must have at least one character, got ''.")
        if self.modulus is not None:
            check_range("modulus", self.modulus, 1, 2**32)

    def transform_of(self, name: str) -> str:
        return dict(self.transforms).get(name, "log")


def raw_options(path: Path, manifest: Mapping[str, Any]) -> tuple[Columns, Reading]:
    """The columns of the raw rows of a data set, and how they were read; `path` is that of the manifest."""
    if manifest["kind"] == "synthetic":
        raise ValueError(f"{path.parent} must have been made from raw rows, got a {manifest['kind']} data set.")
    options = manifest.get("options", {})
    try:
        return Columns(**_plain(options["columns"])), Reading(**_plain(options["reading"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"options of {path} must be as `cce prepare` wrote them, got {error}.") from error


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they were before JSON, which has lists for tuples; those that were not given are left out."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None or name == "label"
    }


WAYS = {  # to split rows, with the options that each uses
    "random": ("validation", "test", "seed"),
    "order": ("validation", "test"),
    "last-file": (),
    "temporal": ("validation", "test"),
    "last-two": (),
    "files": (),
    "none": (),
}


@dataclass(frozen=True)
class Splitting:
    """How rows are held out; `vocabulary.py` has the meaning of each way."""

    way: str = "random"
    validation: float = 0.1  # share of the rows
    test: float = 0.1
    seed: int = 0
    of_files: tuple[str, ...] = ()  # the split of each input

    def __post_init__(self) -> None:
        check_choice("split", self.way, WAYS)
        check_range("seed", self.seed, 0, 2**63)
        shares = (self.validation, self.test)
        if not (all(isinstance(share, float | int) and share >= 0 for share in shares) and sum(shares) < 1):
            got = " and ".join(map(str, shares))
            raise ValueError(f"validation and test must be shares that leave rows to train on, got {got}.")

    def adjusted(self, way: str | None, given: Mapping[str, Any]) -> Splitting:
        """Split another `way`, or with other options; options that have no effect are rejected."""
        base = self if way in (None, "files") else Splitting(str(way))  # whose files are known already
        for name in given:
            if name not in WAYS[base.way]:
                raise ValueError(f"{name} must be left out with split {base.way!r}, got {given[name]!r}.")
        return replace(base, **given)


@dataclass(frozen=True)
class VocabularyRule:
    """Which values get their own id."""

    min_count: int = 1
    source: str = "train"  # or "all": the rows that are counted
    hash_bits: int | None = None  # ids are hashes of this many bits, and nothing is counted; OPEN_BITS: any int64

    def __post_init__(self) -> None:
        check_range("min_count", self.min_count, 1, 2**63)
        check_choice("vocabulary_from", self.source, ("train", "all"))
        if self.hash_bits is not None:
            if self.hash_bits != OPEN_BITS:
                check_range("hash_ids", self.hash_bits, 1, 49)
            if (self.min_count, self.source) != (1, "train"):
                name = "open" if self.hash_bits == OPEN_BITS else "hash_ids"
                raise ValueError(f"{name} counts nothing: leave out min_count and vocabulary_from.")


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
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        check_range("max_bad_rows", self.max_bad_rows, 0, 2**63)
        if not self.inputs:
            raise ValueError("raw must hold at least one file, got none.")
        if self.columns.label is None:
            raise ValueError("columns must name a label, got none.")
        check_columns(str(self.inputs[0]), self.columns_read.used, self.reading.names)

    @property
    def columns_read(self) -> Columns:
        """The columns that are read, those of the split among them."""
        return self.columns.for_split(self.splitting.way)

    def useful_jobs(self) -> int:
        """One process per core, but none for less than 64 MB: each takes a second to start."""
        size = sum(path.stat().st_size for path in {input_.path for input_ in self.inputs} if path.exists())
        return max(1, min(num_cores(), size >> 26))

    def key(self) -> str:
        """Everything on which the result depends: a preparation with another key begins again."""
        files = [(str(input_), input_.path.stat().st_size, input_.path.stat().st_mtime_ns) for input_ in self.inputs]
        return json.dumps([files, asdict(self)], default=str, indent=1)
