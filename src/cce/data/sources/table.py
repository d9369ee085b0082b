"""Any table: CSV, TSV or Parquet files, with words about which column is what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.data.prepare.columns import Columns, Reading
from cce.data.prepare.inputs import Input
from cce.data.prepare.job import Job, Splitting
from cce.data.sources.registry import Option, Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": ""}


def table_job(
    raw: Path, columns: Columns, *, reading: Reading | None = None, splitting: Splitting | None = None
) -> Job:
    """The job of a file, or of all files in a folder; the first line of a text names its columns.

    Fields of a text may be in quotes, but may not hold line breaks.
    """
    inputs = tuple(Input(path) for path in _files(raw))
    for input_ in inputs:
        input_.check()
    names, delimiter = _header(inputs[0])
    for input_ in inputs[1:]:
        if _header(input_)[0] != names:
            raise ValueError(f"files must have the same columns, and {input_} has others than {inputs[0]}.")
    reading = replace(reading or Reading(), names=names, delimiter=delimiter, quoted=True, has_header=bool(delimiter))
    return Job(TABLE.name, inputs, columns, reading, splitting or Splitting())


def _files(raw: Path) -> list[Path]:
    if not raw.is_dir():
        return [raw]
    found = sorted(path for path in raw.iterdir() if _ending(path) in DELIMITERS)
    if not found:
        raise FileNotFoundError(f"{raw} must hold files that end in {', '.join(DELIMITERS)}, and there is none.")
    return found


def _ending(path: Path) -> str:
    """How the name of a file ends, apart from `.gz`."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _header(input_: Input) -> tuple[tuple[str, ...], str]:
    """The names of a file's columns, and what stands between them."""
    ending = _ending(input_.path)
    if ending not in DELIMITERS:
        raise ValueError(f"{input_.path} must end in {', '.join(DELIMITERS)} (or .gz), to say what it is.")
    if input_.is_parquet:
        from cce.data.prepare.arrow import parquet_columns

        return tuple(parquet_columns(input_.path)), ""
    return input_.header(DELIMITERS[ending]), DELIMITERS[ending]


def _make(raw: Path, options: Mapping[str, Any]) -> Job:
    way, timestamp = options.get("split", "random"), options.get("timestamp")
    if timestamp is not None and way != "temporal":
        raise ValueError(f"timestamp must be left out with split {way!r}, got {timestamp!r}.")
    columns = Columns(
        label=options["label"],
        **{name: options.get(name, ()) for name in ("categorical", "dense", "multi_hot")},
        weight=options.get("weight"),
        timestamp=timestamp,
    )
    reading = Reading(
        missing=("", *options.get("missing", ())),
        separator=options.get("separator", "|"),
        log_dense=not options.get("no_log"),
        threshold=options.get("threshold"),
    )
    return table_job(raw, columns, reading=reading)


def _reuse(raw: Path, columns: Columns, reading: Reading) -> Job:
    names, _ = _header(Input(_files(raw)[0]))
    return table_job(raw, columns if columns.label in names else replace(columns, label=None), reading=reading)


TABLE = Source(
    name="table",
    about="any CSV, TSV or Parquet file, or a folder of them",
    example="cce prepare table clicks.parquet runs/clicks --label click --categorical user item --multi-hot tags "
    "--dense age --split temporal --timestamp time",
    splits=("random", "temporal", "column", "order"),
    default_split="random",
    make=_make,
    reuse=_reuse,
    options=(
        Option("label", "the column to predict: 0 or 1, or see --threshold", metavar="COLUMN", required=True),
        Option("categorical", "columns with one value a row", metavar="COLUMN", is_list=True),
        Option("multi_hot", "columns of lists, or of values with a separator", metavar="COLUMN", is_list=True),
        Option("separator", "between the values of a multi-hot column of text (default: |)"),
        Option("dense", "numeric columns", metavar="COLUMN", is_list=True),
        Option("no_log", "take dense values as they are instead of log(1 + x)", is_flag=True),
        Option("timestamp", "the column to split by time", metavar="COLUMN"),
        Option("weight", "the column of row weights", metavar="COLUMN"),
        Option("threshold", "labels from here on are 1, and below 0", type=float),
        Option("missing", "words that stand for a missing value, besides the empty one", metavar="VALUE", is_list=True),
        Option("split_column", "the column of --split column", metavar="COLUMN"),
        Option("validation_values", "its values for validation", metavar="VALUE", is_list=True),
        Option("test_values", "its values for the test; others are for training", metavar="VALUE", is_list=True),
    ),
)
