"""Any table: CSV, TSV or Parquet files, with words about which column is what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cce.data.arrow import parquet_columns
from cce.data.inputs import Input
from cce.data.pipeline import Job
from cce.data.spec import Columns, Reading
from cce.data.split import Splitting
from cce.data.vocabulary import VocabularyRule

if TYPE_CHECKING:
    from pathlib import Path

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": ""}


def table(
    raw: Path,
    columns: Columns,
    *,
    reading: Reading | None = None,
    splitting: Splitting | None = None,
    rule: VocabularyRule | None = None,
    max_bad_rows: int = 0,
    like: Path | None = None,
) -> Job:
    """The job of a file, or of all files in a folder; the first line of a text names its columns.

    Fields of a text may be in quotes, but may not hold line breaks.
    """
    splitting = splitting or Splitting()
    columns = replace(columns, group=splitting.column if splitting.way == "column" else None)
    if splitting.way == "temporal" and columns.timestamp is None:
        raise ValueError("timestamp must name a column to split by time.")
    if splitting.way != "temporal" and columns.timestamp is not None:
        raise ValueError(f"timestamp must be left out unless split is 'temporal', got {columns.timestamp!r}.")
    inputs = tuple(Input(path) for path in _files(raw))
    for input_ in inputs:
        input_.check()
    names, delimiter = _header(inputs[0])
    for input_ in inputs[1:]:
        if _header(input_)[0] != names:
            raise ValueError(f"files must have the same columns, and {input_} has others than {inputs[0]}.")
    absent = [name for name in columns.used if name not in names]
    if absent:
        raise ValueError(f"{inputs[0]} must have a column {absent[0]!r}; it has {', '.join(names)}.")
    twice = [name for name in columns.used if names.count(name) > 1]
    if twice:
        raise ValueError(f"{inputs[0]} must have one column {twice[0]!r}, got {names.count(twice[0])} of that name.")
    reading = replace(reading or Reading(), names=names, delimiter=delimiter, quoted=True, has_header=bool(delimiter))
    return Job("table", inputs, columns, reading, splitting, rule or VocabularyRule(), max_bad_rows, like)


def _files(raw: Path) -> list[Path]:
    if not raw.is_dir():
        return [raw]
    found = sorted(path for path in raw.iterdir() if _kind(path) in DELIMITERS)
    if not found:
        raise FileNotFoundError(f"{raw} must hold files that end in {', '.join(DELIMITERS)}, and there is none.")
    return found


def _kind(path: Path) -> str:
    """How the name of a file ends, apart from `.gz`."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _header(input_: Input) -> tuple[tuple[str, ...], str]:
    """The names of a file's columns, and what stands between them."""
    kind = _kind(input_.path)
    if kind not in DELIMITERS:
        raise ValueError(f"{input_.path} must end in {', '.join(DELIMITERS)} (or .gz), to say what it is.")
    if input_.is_parquet:
        return tuple(parquet_columns(input_.path)), ""
    return input_.header(DELIMITERS[kind]), DELIMITERS[kind]
