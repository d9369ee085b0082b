"""Rows by columns: Parquet files by row group, frames of any library that speaks Arrow's C interface (pandas, polars,
pyarrow, …; none is imported), lists of dictionaries, and lines of text, with a reason for each malformed one.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from cce.data.arrow.blocks import Array, NotNumbersError, RawBlock, Values, first_line, one_chunk, raw_block
from cce.data.preparation.job import Columns, Reading
from cce.data.raw_files import check_columns


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Reject a damaged Parquet file by name."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(f"{path} must be a whole Parquet file, and it is damaged: {first_line(error)}") from error


def parquet_columns(path: Path) -> list[str]:
    with parquet_errors(path):
        return list(pq.read_schema(path).names)


def parquet_groups(path: Path) -> list[int]:
    """Rows of each row group of a Parquet file."""
    with parquet_errors(path):
        metadata = pq.read_metadata(path)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def parquet_blocks(
    path: Path, group: int | None, columns: Columns, reading: Reading, num_rows: int
) -> Iterator[RawBlock]:
    """A row group, or all of them, in blocks of at most `num_rows` rows."""
    with parquet_errors(path), pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups) if group is None else [group]
        for batch in file.iter_batches(num_rows, row_groups=groups, columns=list(columns.used), use_threads=False):
            yield raw_block(pa.table(batch), columns, reading)


class TableWriter:
    """A Parquet file that is written block by block; `types` are those of its columns, by name, in Arrow's words."""

    def __init__(self, path: Path, types: Mapping[str, str]) -> None:
        self._schema = pa.schema(dict(types))
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, columns: Mapping[str, Any]) -> None:
        self._writer.write_table(pa.table(dict(columns), self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()


def save_vocabulary(path: Path, values: Values, counts: Array) -> None:
    """Parquet: the value with id `i` is in row `i - 1`."""
    pq.write_table(pa.table({"value": values, "count": counts}), path, compression="zstd")


def load_vocabulary(path: Path) -> tuple[Values, Array]:
    """Values by falling count, and their counts."""
    with parquet_errors(path):
        table = pq.read_table(path, columns=["value", "count"])
    return one_chunk(table["value"]), one_chunk(table["count"]).to_numpy()


def frame_blocks(frame: Any, columns: Columns, reading: Reading, num_rows: int) -> Iterator[RawBlock]:
    """A frame in blocks of at most `num_rows` rows, without a copy where its library can do so."""
    stream = pa.RecordBatchReader.from_stream(frame)
    check_columns("rows", columns.used, stream.schema.names)
    for batch in stream:
        for start in range(0, batch.num_rows, num_rows):
            yield raw_block(pa.table(batch.slice(start, num_rows).select(list(columns.used))), columns, reading)


def record_blocks(
    records: Sequence[Mapping[str, Any]], columns: Columns, reading: Reading, num_rows: int
) -> Iterator[RawBlock]:
    """A list of dictionaries in blocks; a key that a row lacks is a missing value, but some row must have it."""
    for index, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise TypeError(f"rows must be dictionaries, got {type(record).__name__} at index {index}.")
    names = list(dict.fromkeys(name for record in records for name in record))
    check_columns("rows", columns.used, names if records else columns.used)
    for start in range(0, len(records), num_rows):
        some = records[start : start + num_rows]
        arrays = {name: _column([record.get(name) for record in some], name) for name in columns.used}
        yield raw_block(pa.table(arrays), columns, reading)


def json_blocks(path: Path, columns: Columns, reading: Reading, num_rows: int) -> Iterator[RawBlock]:
    """A file of JSON lines, which are objects, in blocks of at most `num_rows` rows."""
    with path.open("rb") as file:
        for first in itertools.count(1, num_rows):
            lines = enumerate(itertools.islice(file, num_rows), start=first)
            records = [_json_object(line, f"{path}, row {number}") for number, line in lines]
            if not records:
                return
            yield from record_blocks(records, columns, reading, num_rows)


def _json_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{where}: a row must be a JSON object, got {line.rstrip()[:40]!r}.")
    return found


def _column(values: list[Any], name: str) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise ValueError(f"column {name!r} must hold values of one type: {first_line(error)}") from error


NUMBER = r"^\s*[+-]?((\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))\s*$"


def parse_text(text: bytes, columns: Columns, reading: Reading) -> RawBlock:
    """The rows of whole lines of text.

    Bad lines are blank, have a wrong number of columns, or hold no number where one is due.
    """
    if len(reading.delimiter) > 1:
        text = text.replace(reading.delimiter.encode(), b"\t")
    has_blank_line = text.startswith((b"\n", b"\r\n")) or b"\n\n" in text or b"\n\r\n" in text
    if has_blank_line or b"\0" in text:
        return _parse_with_care(text, columns, reading)
    bad: list[tuple[int, str]] = []
    try:
        table = _read_csv(text, columns, reading, bad)
        return raw_block(table, columns, reading, _good_lines(table.num_rows, bad), bad)
    except (pa.ArrowInvalid, NotNumbersError):
        return _parse_with_care(text, columns, reading)


def _parse_with_care(text: bytes, columns: Columns, reading: Reading) -> RawBlock:
    """Parse text with malformed lines or numbers: all columns are read as words first."""
    bad: list[tuple[int, str]] = []
    text, broken = _without_broken_lines(text, len(reading.names))
    try:
        table = _read_csv(text, columns, reading, bad, as_words=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"a text must be lines of {len(reading.names)} columns: {first_line(error)}") from error
    bad = [(line, reason) for line, reason in bad if line not in broken]
    lines = _good_lines(table.num_rows, bad)
    good = ~np.isin(lines, list(broken))
    bad += broken.items()
    for name in _numeric(columns):
        texts = table[name]
        is_number = pc.fill_null(pc.match_substring_regex(texts, NUMBER), True).to_numpy()  # noqa: FBT003
        wrong = np.flatnonzero(good & ~is_number).tolist()
        bad.extend((int(lines[row]), f"{name} must be a number, got {texts[row].as_py()!r}") for row in wrong)
        good &= is_number
    return raw_block(table.filter(pa.array(good)), columns, reading, lines[good], bad)


def _without_broken_lines(text: bytes, num_columns: int) -> tuple[bytes, dict[int, str]]:
    """The text with lines that are no text emptied, and what is wrong with them and with blank ones."""
    lines, reasons = text.removesuffix(b"\n").split(b"\n"), {}
    for index, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            reasons[index] = f"a line must be UTF-8, got the byte 0x{line[error.start]:02x}"
        if b"\0" in line:
            reasons[index] = "a line must be text, got the byte 0x00"
        if line in (b"", b"\r"):
            reasons[index] = f"expected {num_columns} columns, got a blank line"
    for index in reasons:
        lines[index] = b""
    return b"\n".join(lines) + b"\n", reasons


def _read_csv(
    text: bytes, columns: Columns, reading: Reading, bad: list[tuple[int, str]], *, as_words: bool = False
) -> Any:
    def note(row: Any) -> str:
        bad.append((row.number - 1, f"expected {row.expected_columns} columns, got {row.actual_columns}"))
        return "skip"

    types = dict.fromkeys(columns.used, pa.string())
    if not as_words:
        types |= dict.fromkeys(_numeric(columns), pa.float64())
        types |= dict.fromkeys(columns.categorical, pa.dictionary(pa.int32(), pa.string()))
    delimiter = "\t" if len(reading.delimiter) > 1 else reading.delimiter
    return pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(column_names=reading.names, use_threads=False, block_size=len(text) + 1),
        pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if reading.quoted else False,
            ignore_empty_lines=False,
            invalid_row_handler=note,
        ),
        pyarrow.csv.ConvertOptions(
            column_types=types,
            include_columns=list(columns.used),
            null_values=list(reading.missing),
            strings_can_be_null=True,
        ),
    ).combine_chunks()


def _numeric(columns: Columns) -> list[str]:
    """Columns of numbers alone; a time may be a word."""
    return [name for name in dict.fromkeys((*columns.numbers.values(), *columns.dense)) if name != columns.timestamp]


def _good_lines(num_rows: int, bad: list[tuple[int, str]]) -> Array:
    lines = np.arange(num_rows + len(bad))
    return np.delete(lines, [line for line, _ in bad]) if bad else lines
