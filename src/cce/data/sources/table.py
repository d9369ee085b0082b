"""Any table: CSV, TSV or Parquet files, with options that say which column is what."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cce.data.preparation.job import TRANSFORMS, Columns, Job, Reading, Splitting
from cce.data.raw_files import find_inputs, read_names
from cce.data.sources.registry import Option, Source

SPLIT_FILES = {"train": "train", "valid": "validation", "test": "test"}  # by how a name begins


def table_job(
    raw: Path, columns: Columns, *, reading: Reading | None = None, splitting: Splitting | None = None
) -> Job:
    """The job of a file, or of all files in a folder; the first line of a text names its columns.

    Fields of a text may be in quotes, but may not hold line breaks.
    """
    inputs = find_inputs(raw)
    names, found = read_names(inputs)
    as_found: dict[str, Any] = {
        "names": names,
        "delimiter": found.delimiter,
        "quoted": True,
        "has_header": not found.by_columns,
    }
    return Job(TABLE.name, inputs, columns, replace(reading or Reading(), **as_found), splitting or Splitting())


def _make(raw: Path, options: Mapping[str, Any]) -> Job:
    way, timestamp = options.get("split", "random"), options.get("timestamp")
    if timestamp is not None and way not in ("temporal", "none"):
        raise ValueError(f"timestamp must be left out with split {way!r}, got {timestamp!r}.")
    inputs, splitting = find_inputs(raw), Splitting()
    if way == "files":
        splitting = Splitting(way, of_files=tuple(_split_of(each.path, raw) for each in inputs))
    columns, reading = read_columns(read_names(inputs)[0], options)
    return table_job(raw, columns, reading=reading, splitting=splitting)


def _split_of(path: Path, raw: Path) -> str:
    """The split of a file, by its name, or by that of the folder within `raw` that it lies in."""
    name = path.relative_to(raw).parts[0] if path != raw else raw.name
    found = next((split for start, split in SPLIT_FILES.items() if name.startswith(start)), None)
    if found is None:
        raise ValueError(f"names of files to split by must begin with {', '.join(SPLIT_FILES)}; got {name!r} in {raw}.")
    return found


TABLE = Source(
    name="table",
    about="any CSV, TSV or Parquet file, plain or .gz, or a folder of them",
    splits=("random", "temporal", "order", "files", "none"),
    make=_make,
    options=(
        Option("label", "column to predict: 0 or 1, or see --threshold", metavar="COLUMN", required=True),
        Option("categorical", "columns with one value per row; '*' takes all others", metavar="COLUMN", is_list=True),
        Option(
            "multi_hot",
            "columns with several values per row: lists, or text with a separator",
            metavar="COLUMN",
            is_list=True,
        ),
        Option("separator", "separator between the values of a multi-hot column of text, such as ^ (default: |)"),
        Option(
            "dense",
            "numeric columns: NAME or NAME:log gives log(1 + x), NAME:standard scales by mean and standard deviation "
            "of the training rows, NAME:identity keeps values",
            metavar="COLUMN",
            is_list=True,
        ),
        Option(
            "timestamp",
            "the column to split by time, or with --split none to see that a stream goes forward: numbers, or times "
            "of ISO 8601",
            metavar="COLUMN",
        ),
        Option("weight", "column of row weights", metavar="COLUMN"),
        Option("threshold", "labels of at least this value become 1, smaller ones 0", type=float),
        Option("missing", "text that means a missing value, besides empty text", metavar="VALUE", is_list=True),
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
