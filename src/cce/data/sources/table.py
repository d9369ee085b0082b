"""Any table: CSV, TSV or Parquet files, with options that say which column is what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cce.data.preparation.job import TRANSFORMS, Columns, Job, Reading, Splitting
from cce.data.raw_files import FileFormat, Input, find_inputs, read_names
from cce.data.sources.registry import Option, Source

SPLIT_FILES = ("train", "validation", "test")


def table_job(
    raw: Path | Sequence[Path],
    columns: Columns,
    *,
    reading: Reading | None = None,
    splitting: Splitting | None = None,
) -> Job:
    """The job of a file, of several, or of all files in a folder; the first line of a text names its columns.

    Fields of a text may be in quotes, but may not hold line breaks.
    """
    inputs = find_inputs(raw)
    return _job(inputs, *read_names(inputs), columns, reading or Reading(), splitting or Splitting())


def _job(
    inputs: tuple[Input, ...],
    names: tuple[str, ...],
    found: FileFormat,
    columns: Columns,
    reading: Reading,
    splitting: Splitting,
) -> Job:
    """The job of files of this format with these columns."""
    as_found: dict[str, Any] = {
        "names": names,
        "delimiter": found.delimiter,
        "quoted": True,
        "has_header": not found.by_columns,
    }
    return Job(TABLE.name, inputs, columns, replace(reading, **as_found), splitting)


def _make(raw: Path | None, options: Mapping[str, Any]) -> Job:
    files = {split: _split_files(split, options) for split in SPLIT_FILES}
    given = [split for split in SPLIT_FILES if files[split]]
    if raw is None and not files["train"]:
        raise ValueError("raw must be given, or files with train; got neither.")
    if raw is not None and files["train"]:
        raise ValueError(f"give raw or train, got both: {str(raw)!r} and {str(files['train'][0])!r}.")
    if given and options.get("split") is not None:
        raise ValueError(f"split must be left out where files are given for {given[0]}, got {options['split']!r}.")
    way, timestamp = options.get("split", "random"), options.get("timestamp")
    if timestamp is not None and way != "temporal":
        raise ValueError(f"timestamp must be left out with split {way!r}, got {timestamp!r}.")
    if raw is not None:
        files["train"] = (raw,)
    groups = [(split, each) for split, paths in files.items() for each in (find_inputs(paths) if paths else ())]
    inputs = tuple(each for _, each in groups)
    names, found = read_names(inputs)
    splitting = Splitting("files", of_files=tuple(split for split, _ in groups)) if given else Splitting()
    return _job(inputs, names, found, *read_columns(names, options), splitting)


def _split_files(split: str, options: Mapping[str, Any]) -> tuple[Path, ...]:
    """The files of a split; none where a share is given instead."""
    value = options.get(split, ())
    if isinstance(value, float | int) and split != "train":
        return ()
    if not isinstance(value, tuple) or not all(isinstance(each, str | Path) for each in value):
        raise ValueError(f"{split} must be one share or names of files, got {value!r}.")
    return tuple(Path(each) for each in value)


TABLE = Source(
    name="table",
    about="any CSV, TSV or Parquet file, plain or compressed, or a folder of them",
    splits=("random", "temporal", "order"),
    make=_make,
    has_split_files=True,
    options=(
        Option("label", "the column to predict: 0 or 1, or see --threshold", metavar="COLUMN", required=True),
        Option("categorical", "columns with one value a row; '*': all others", metavar="COLUMN", is_list=True),
        Option("multi_hot", "columns of lists, or of values with a separator", metavar="COLUMN", is_list=True),
        Option("separator", "between the values of a multi-hot column of text, such as ^ (default: |)"),
        Option(
            "dense",
            "numeric columns: NAME or NAME:log is log(1 + x), NAME:standard is scaled by mean and deviation of "
            "training rows, NAME:identity stays",
            metavar="COLUMN",
            is_list=True,
        ),
        Option("train", "files to train on, instead of RAW", metavar="FILE", is_list=True),
        Option("timestamp", "the column to split by time: numbers, or times of ISO 8601", metavar="COLUMN"),
        Option("weight", "the column of row weights", metavar="COLUMN"),
        Option("threshold", "labels from here on are 1, and below 0", type=float),
        Option("missing", "words that stand for a missing value, besides the empty one", metavar="VALUE", is_list=True),
    ),
)


ALL = "*"


def read_columns(names: Sequence[str], options: Mapping[str, Any]) -> tuple[Columns, Reading]:
    """The columns of a file with these names, and how their values are read."""
    dense, transforms = _dense(names, options.get("dense", ()))
    columns = Columns(
        label=options["label"],
        categorical=_categorical(names, options, dense),
        dense=tuple(dense),
        multi_hot=options.get("multi_hot", ()),
        weight=options.get("weight"),
        timestamp=options.get("timestamp"),
    )
    reading = Reading(
        missing=("", *options.get("missing", ())),
        separator=options.get("separator", "|"),
        threshold=options.get("threshold"),
        transforms=transforms,
    )
    return columns, reading


def _categorical(names: Sequence[str], options: Mapping[str, Any], dense: Sequence[str]) -> tuple[str, ...]:
    given = options.get("categorical", ())
    if given != (ALL,):
        return tuple(given)
    taken = {*dense, *options.get("multi_hot", ()), *map(options.get, ("label", "weight", "timestamp"))}
    return tuple(name for name in names if name not in taken)


def _dense(names: Sequence[str], given: Sequence[str]) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Names of all numeric columns, and transforms of some."""
    dense, transforms = [], []
    for text in given:
        name, colon, how = text.rpartition(":")
        if not colon or (text in names and how not in TRANSFORMS):
            dense.append(text)
            continue
        dense.append(name)
        if how not in TRANSFORMS:
            raise ValueError(f"dense must be NAME or NAME:{'|'.join(TRANSFORMS)}, got {text!r}.")
        transforms.append((name, how))
    return dense, tuple(transforms)
