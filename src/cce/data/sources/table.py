"""Any table: CSV, TSV, JSON lines or Parquet files, with words about which column is what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.data.prepare.columns import Columns, Reading
from cce.data.prepare.job import Job, Splitting
from cce.data.raw_format import FORMATS
from cce.data.sources.registry import Option, Source
from cce.data.sources.table_columns import read_columns
from cce.data.sources.table_files import Header, find_inputs, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SPLIT_FILES = ("train", "validation", "test")


def table_job(
    raw: Path | Sequence[Path],
    columns: Columns,
    *,
    reading: Reading | None = None,
    splitting: Splitting | None = None,
    form: str | None = None,
) -> Job:
    """The job of a file, of several, or of all files in a folder; the first line of a text names its columns.

    Fields of a text may be in quotes, but may not hold line breaks. `form` is what files are, where names do not say.
    """
    inputs = find_inputs(raw, form)
    header = read_header(inputs, form)
    return Job(TABLE.name, inputs, columns, _as_header(reading or Reading(), header), splitting or Splitting())


def _as_header(reading: Reading, header: Header) -> Reading:
    return replace(
        reading,
        names=header.names,
        delimiter=header.delimiter,
        quoted=True,
        has_header=bool(header.delimiter),
        is_json=header.is_json,
    )


def _make(raw: Path | None, options: Mapping[str, Any]) -> Job:
    files = {split: _split_files(split, options) for split in SPLIT_FILES}
    _check_ways(raw, files, options)
    form = options.get("format")
    groups = {"train": find_inputs(raw, form)} if raw is not None else {}
    for split, paths in files.items():
        groups[split] = (*groups.get(split, ()), *(find_inputs(paths, form) if paths else ()))
    inputs = tuple(each for split in SPLIT_FILES for each in groups.get(split, ()))
    header = read_header(inputs, form)
    columns, reading = read_columns(header.names, options)
    given = any(files.values())
    of_files = tuple(split for split in SPLIT_FILES for _ in groups.get(split, ()))
    splitting = Splitting("files", of_files=of_files) if given else Splitting()
    return Job(TABLE.name, inputs, columns, _as_header(reading, header), splitting)


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
    names = read_header(find_inputs(raw, None), None).names
    return table_job(raw, columns if columns.label in names else replace(columns, label=None), reading=reading)


TABLE = Source(
    name="table",
    about="any CSV, TSV, JSON lines or Parquet file, plain or compressed, or a folder of them",
    example="cce prepare table clicks.parquet runs/clicks --label click --categorical user item --multi-hot tags "
    "--dense age --split temporal --timestamp time\n"
    "  cce prepare table runs/clicks --train day-*.csv.gz --validation valid.csv --test test.csv --label click "
    "--categorical '*' --drop id --dense age:standard price:bins=32\n"
    "  cce prepare table log.jsonl runs/clicks --label stars --threshold 4 --categorical item --multi-hot history "
    "--separator ^ --max-length 50 --share-ids history=item\n"
    "  zcat log.gz | cce prepare table - runs/clicks --format tsv --label click --categorical user --hash-ids 20",
    splits=("random", "temporal", "column", "order"),
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
            "training rows, NAME:identity stays, NAME:bins=32 becomes a feature of so many bins of about as many rows",
            metavar="COLUMN",
            is_list=True,
        ),
        Option("drop", "columns that --categorical '*' leaves out", metavar="COLUMN", is_list=True),
        Option("timestamp", "the column to split by time: numbers, or times of ISO 8601", metavar="COLUMN"),
        Option("weight", "the column of row weights", metavar="COLUMN"),
        Option("threshold", "labels from here on are 1, and below 0", type=float),
        Option("missing", "words that stand for a missing value, besides the empty one", metavar="VALUE", is_list=True),
        Option("format", "what files are, where their names do not say", choices=tuple(FORMATS)),
        Option("split_column", "the column of --split column", metavar="COLUMN"),
        Option("validation_values", "its values for validation", metavar="VALUE", is_list=True),
        Option("test_values", "its values for the test; others are for training", metavar="VALUE", is_list=True),
    ),
)
