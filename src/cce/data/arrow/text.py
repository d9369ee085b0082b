"""Lines of text → columns, with a reason for each malformed line; and zstandard, which Python reads from 3.14 on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cce.data.arrow.blocks import Array, NotNumbersError, RawBlock, first_line, raw_block
from cce.data.raw_files import DamagedError

if TYPE_CHECKING:
    from cce.data.preparation.job import Columns, Reading

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
    names = _numeric(columns)
    for name in names:
        texts = pc.cast(table[name], pa.string())
        is_number = pc.fill_null(pc.match_substring_regex(texts, NUMBER), True).to_numpy()  # noqa: FBT003
        wrong = np.flatnonzero(good & ~is_number).tolist()
        bad.extend((int(lines[row]), f"{name} must be a number, got {texts[row].as_py()!r}") for row in wrong)
        good &= is_number
    table = table.filter(pa.array(good))
    for name in (name for name in names if name not in _words(columns)):
        index = table.column_names.index(name)
        table = table.set_column(index, name, pc.cast(pc.utf8_trim_whitespace(table[name]), pa.float64()))
    return raw_block(table, columns, reading, lines[good], bad)


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

    numbers = {} if as_words else dict.fromkeys(_numeric(columns), pa.float64())
    types = {**dict.fromkeys(columns.used, pa.string()), **numbers}
    types |= dict.fromkeys(_words(columns), pa.dictionary(pa.int32(), pa.string()))
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


def _words(columns: Columns) -> list[str]:
    """Columns that features with one value a row are read from."""
    return [columns.column_of(name) for name in columns.categorical]


def _good_lines(num_rows: int, bad: list[tuple[int, str]]) -> Array:
    lines = np.arange(num_rows + len(bad))
    return np.delete(lines, [line for line, _ in bad]) if bad else lines


@contextmanager
def open_zstd(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """The text of an open .zst file."""
    try:
        with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
            yield cast("IO[bytes]", BufferedReader(stream))  # it has lines
    except (OSError, pa.ArrowException) as error:
        raise DamagedError(first_line(error)) from error
