"""Any table: CSV, TSV, JSON lines or Parquet files, with options that say which column is what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cce.data.preparation.job import TRANSFORMS, Columns, Job, Reading, Splitting
from cce.data.raw_files import FileFormat, find_inputs, read_names
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
    names, found = read_names(inputs)
    return Job(TABLE.name, inputs, columns, _as_found(reading or Reading(), names, found), splitting or Splitting())


def _as_found(reading: Reading, names: tuple[str, ...], found: FileFormat) -> Reading:
    """How files of this format with these columns are read."""
    delimiter, is_json = found.delimiter, found.is_json
    return replace(reading, names=names, delimiter=delimiter, quoted=True, has_header=bool(delimiter), is_json=is_json)


def _make(raw: Path | None, options: Mapping[str, Any]) -> Job:
    files = {split: _split_files(split, options) for split in SPLIT_FILES}
    _check_ways(raw, files, options)
    groups = {"train": find_inputs(raw)} if raw is not None else {}
    for split, paths in files.items():
        groups[split] = (*groups.get(split, ()), *(find_inputs(paths) if paths else ()))
    inputs = tuple(each for split in SPLIT_FILES for each in groups.get(split, ()))
    names, found = read_names(inputs)
    columns, reading = read_columns(names, options)
    given = any(files.values())
    of_files = tuple(split for split in SPLIT_FILES for _ in groups.get(split, ()))
    splitting = Splitting("files", of_files=of_files) if given else Splitting()
    return Job(TABLE.name, inputs, columns, _as_found(reading, names, found), splitting)


def _split_files(split: str, options: Mapping[str, Any]) -> tuple[Path, ...]:
    """The files of a split; none where a share is given instead."""
    from pathlib import Path

    value = options.get(split, ())
    if isinstance(value, float | int) and split != "train":
        return ()
    if not isinstance(value, tuple) or not all(isinstance(each, str | Path) for each in value):
        raise ValueError(f"{split} must be one share or names of files, got {value!r}.")
    return tuple(Path(each) for each in value)


def _check_ways(raw: Path | None, files: Mapping[str, tuple[Path, ...]], options: Mapping[str, Any]) -> None:
    given = [split for split in SPLIT_FILES if files[split]]
    if not (raw is not None or files["train"]):
        raise ValueError("raw must be given, or files with train; got neither.")
    if raw is not None and files["train"]:
        raise ValueError(f"give raw or train, got both: {str(raw)!r} and {str(files['train'][0])!r}.")
    if given and options.get("split") is not None:
        raise ValueError(f"split must be left out where files are given for {given[0]}, got {options['split']!r}.")
    way, timestamp = options.get("split", "random"), options.get("timestamp")
    if timestamp is not None and way != "temporal":
        raise ValueError(f"timestamp must be left out with split {way!r}, got {timestamp!r}.")


def _reuse(raw: Path, columns: Columns, reading: Reading) -> Job:
    names, _ = read_names(find_inputs(raw))
    return table_job(raw, columns if columns.label in names else replace(columns, label=None), reading=reading)


TABLE = Source(
    name="table",
    about="any CSV, TSV, JSON lines or Parquet file, plain or compressed, or a folder of them",
    example="cce prepare table clicks.parquet runs/clicks --label click --categorical user item --multi-hot tags "
    "--dense age --split temporal --timestamp time\n"
    "  cce prepare table runs/clicks --train day-*.csv.gz --validation valid.csv --test test.csv --label click "
    "--categorical '*' --drop id --dense age:standard price\n"
    "  cce prepare table log.jsonl runs/clicks --label stars --threshold 4 --categorical item --multi-hot history "
    "--separator ^ --max-length 50 --share-ids history=item",
    splits=("random", "temporal", "order"),
    default_split="random",
    make=_make,
    reuse=_reuse,
    has_split_files=True,
    options=(
        Option("label", "the column to predict: 0 or 1, or see --threshold", metavar="COLUMN", required=True),
        Option("categorical", "columns with one value a row; '*': all others", metavar="COLUMN", is_list=True),
        Option("multi_hot", "columns of lists, or of values with a separator", metavar="COLUMN", is_list=True),
        Option("separator", "between the values of a multi-hot column of text, such as ^ (default: |)"),
        Option("max_length", "keep the last values of a multi-hot column only", type=int),
        Option(
            "share_ids",
            "columns with the ids of another, such as history=item: their values are counted together",
            metavar="COLUMN=OTHER",
            is_list=True,
        ),
        Option(
            "dense",
            "numeric columns: NAME or NAME:log is log(1 + x), NAME:standard is scaled by mean and deviation of "
            "training rows, NAME:identity stays",
            metavar="COLUMN",
            is_list=True,
        ),
        Option("drop", "columns that --categorical '*' leaves out", metavar="COLUMN", is_list=True),
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
        shared=tuple(_pair(text) for text in options.get("share_ids", ())),
    )
    reading = Reading(
        missing=("", *options.get("missing", ())),
        separator=options.get("separator", "|"),
        threshold=options.get("threshold"),
        max_length=options.get("max_length"),
        transforms=transforms,
    )
    return columns, reading


def _categorical(names: Sequence[str], options: Mapping[str, Any], dense: Sequence[str]) -> tuple[str, ...]:
    given, dropped = options.get("categorical", ()), options.get("drop", ())
    for name in dropped:
        if name not in names:
            raise ValueError(f"drop must name columns of the file, {', '.join(names)}; got {name!r}.")
    if given != (ALL,):
        if dropped:
            raise ValueError(f"drop goes with categorical '*', which takes all other columns; got {dropped[0]!r}.")
        return tuple(given)
    others = ("label", "weight", "timestamp")
    taken = {*dense, *options.get("multi_hot", ()), *dropped, *(options.get(role) for role in others)}
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


def _pair(text: str) -> tuple[str, str]:
    name, equals, other = text.partition("=")
    if not equals or not name or not other:
        raise ValueError(f"share_ids must have the form COLUMN=OTHER, got {text!r}.")
    return name, other
