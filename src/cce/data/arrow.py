"""The one door to pyarrow: text and Parquet into columns, values into counts, and files of both.

Columns of words are kept as a *dictionary*, the values of a block once each, and an index for each row (-1: missing).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from cce.data.spec import Columns, Reading

Values: TypeAlias = Any  # an arrow array
Array: TypeAlias = Any  # a numpy array: what pyarrow gives has no types
NUMBER = r"^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$"


@dataclass
class Words:
    """A column of words: `values[indices[row]]`, or missing where the index is -1."""

    indices: Array  # int32
    values: Values
    lengths: Array | None = None  # of a multi-hot column: words of each row


@dataclass
class RawBlock:
    """Some rows as they were read. `lines` are their numbers in the block, from 0; `bad` are lines that are no rows."""

    numbers: dict[str, Array]  # float64 columns, NaN where missing
    words: dict[str, Words]
    lines: Array
    num_lines: int
    bad: list[tuple[int, str]] = field(default_factory=list)

    def keep(self, kept: Array) -> RawBlock:
        """The rows where `kept` is true."""
        numbers = {name: column[kept] for name, column in self.numbers.items()}
        words = {name: _some_words(column, kept) for name, column in self.words.items()}
        return RawBlock(numbers, words, self.lines[kept], self.num_lines, self.bad)


class NotNumbersError(ValueError):
    """A column of numbers holds something else."""


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_text(text: bytes, columns: Columns, reading: Reading) -> RawBlock:
    """The rows of whole lines of text. Lines with a wrong number of columns or no number where one is due are bad."""
    if len(reading.delimiter) > 1:
        text = text.replace(reading.delimiter.encode(), b"\t")
    if b"\0" in text:
        return _parse_with_care(text, columns, reading)
    bad: list[tuple[int, str]] = []
    try:
        table = _read_csv(text, columns, reading, bad)
        lines = _good_lines(table.num_rows, bad)
        return _raw_block(table, columns, reading, lines, bad)
    except (pa.ArrowInvalid, NotNumbersError):
        return _parse_with_care(text, columns, reading)


def _parse_with_care(text: bytes, columns: Columns, reading: Reading) -> RawBlock:
    """As above for text in which some line is no text or some number is none: all is read as words first."""
    bad: list[tuple[int, str]] = []
    text, no_text = _without_binary_lines(text)
    try:
        table = _read_csv(text, columns, reading, bad, as_words=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"a text must be lines of {len(reading.names)} columns: {_first_line(error)}") from error
    bad = [(line, reason) for line, reason in bad if line not in no_text]
    lines = _good_lines(table.num_rows, bad)
    good = ~np.isin(lines, list(no_text))
    bad += no_text.items()
    names = dict.fromkeys((*columns.numbers.values(), *columns.dense))
    for name in names:
        texts = pc.cast(table[name], pa.string())
        is_number = pc.fill_null(pc.match_substring_regex(texts, NUMBER), True).to_numpy()  # noqa: FBT003
        wrong = np.flatnonzero(good & ~is_number).tolist()
        bad.extend((int(lines[row]), f"{name} must be a number, got {texts[row].as_py()!r}") for row in wrong)
        good &= is_number
    table = table.filter(pa.array(good))
    for name in (name for name in names if name not in columns.words):
        place = table.column_names.index(name)
        table = table.set_column(place, name, pc.cast(pc.utf8_trim_whitespace(table[name]), pa.float64()))
    return _raw_block(table, columns, reading, lines[good], bad)


def _without_binary_lines(text: bytes) -> tuple[bytes, dict[int, str]]:
    """The text with lines that are not UTF-8 emptied, and why they were."""
    lines, reasons = text.split(b"\n"), {}
    for number, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            reasons[number] = f"a line must be UTF-8, got the byte 0x{line[error.start]:02x}"
        if b"\0" in line:
            reasons[number] = "a line must be text, got the byte 0x00"
    for number in reasons:
        lines[number] = b""
    return b"\n".join(lines), reasons


def _read_csv(
    text: bytes, columns: Columns, reading: Reading, bad: list[tuple[int, str]], *, as_words: bool = False
) -> Any:
    def note(row: Any) -> str:
        bad.append((row.number - 1, f"expected {row.expected_columns} columns, got {row.actual_columns}"))
        return "skip"

    numbers = {} if as_words else dict.fromkeys((*columns.numbers.values(), *columns.dense), pa.float64())
    types = {**dict.fromkeys(columns.used, pa.string()), **numbers}
    types |= dict.fromkeys(columns.words, pa.dictionary(pa.int32(), pa.string()))
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


def _good_lines(num_rows: int, bad: list[tuple[int, str]]) -> Array:
    lines = np.arange(num_rows + len(bad))
    return np.delete(lines, [line for line, _ in bad]) if bad else lines


def _raw_block(table: Any, columns: Columns, reading: Reading, lines: Array, bad: list[tuple[int, str]]) -> RawBlock:
    names = (*columns.numbers.values(), *columns.dense)
    numbers = {name: _as_numbers(table[name], name) for name in dict.fromkeys(names)}
    words = {name: _as_words(table[name], name, reading.missing) for name in columns.words}
    words |= {name: _as_bags(table[name], name, reading) for name in columns.multi_hot}
    return RawBlock(numbers, words, lines, table.num_rows + len(bad), bad)


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Refuse a damaged Parquet file by name."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(f"{path} must be a whole Parquet file, and it is damaged: {_first_line(error)}") from error


def parquet_columns(path: Path) -> list[str]:
    """Names of a Parquet file's columns."""
    with parquet_errors(path):
        return list(pq.read_schema(path).names)


def parquet_groups(path: Path) -> list[int]:
    """Rows of each row group of a Parquet file."""
    with parquet_errors(path):
        facts = pq.read_metadata(path)
    return [facts.row_group(group).num_rows for group in range(facts.num_row_groups)]


def parquet_blocks(path: Path, group: int, columns: Columns, reading: Reading, num_rows: int) -> Iterator[RawBlock]:
    """A row group in blocks of at most `num_rows` rows."""
    with parquet_errors(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(num_rows, row_groups=[group], columns=list(columns.used), use_threads=False):
            table = pa.table(batch)
            yield _raw_block(table, columns, reading, np.arange(len(table)), [])


def save_first_rows(path: Path, out: Path, num_rows: int) -> int:
    """Copy the first rows of a Parquet file; gives how many there were, at most `num_rows`."""
    with parquet_errors(path), pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(num_rows, use_threads=False), None)
        table = pa.table(batch) if batch is not None else file.schema_arrow.empty_table()
        pq.write_table(table, out)
    return int(table.num_rows)


def _as_numbers(column: Any, name: str) -> Array:
    try:
        numbers = pc.cast(column, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {name!r} must hold numbers, got {column.type}: {_first_line(error)}"
        raise NotNumbersError(message) from error
    return _one_chunk(pc.fill_null(numbers, float("nan"))).to_numpy(zero_copy_only=False)


def _as_words(column: Any, name: str, missing: tuple[str, ...]) -> Words:
    column = _one_chunk(column)
    try:
        if not pa.types.is_dictionary(column.type):
            column = _plain(column).dictionary_encode()
        values = _plain(column.dictionary)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name!r} must hold words or whole numbers, got {column.type}.") from error
    indices = pc.fill_null(pc.cast(column.indices, pa.int32()), -1).to_numpy(zero_copy_only=False)
    is_missing = pc.fill_null(pc.is_in(pc.cast(values, pa.string()), pa.array(missing)), True)  # noqa: FBT003
    if pc.any(is_missing).as_py():
        gone = np.append(is_missing.to_numpy(zero_copy_only=False), True)  # the last one is for the index -1
        indices = np.where(gone[indices], np.int32(-1), indices)
    return Words(indices, values)


def _as_bags(column: Any, name: str, reading: Reading) -> Words:
    """Lists, or words with a separator between them; missing words within a bag are left out."""
    column = _one_chunk(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.split_pattern(column, reading.separator)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise ValueError(f"multi-hot column {name!r} must hold lists or text, got {column.type}.")
    words = _as_words(pc.list_flatten(column), name, reading.missing)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    present = words.indices >= 0
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return Words(words.indices[present], words.values, np.bincount(rows[present], minlength=len(lengths)))


def _plain(values: Any) -> Any:
    """Integers as int64, and everything else as words."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.cast(values, pa.int64() if pa.types.is_integer(values.type) else pa.string())


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _one_chunk(column: Any) -> Any:
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(combined, pa.ChunkedArray):  # an empty column has no chunk at all
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


def _some_words(words: Words, kept: Array) -> Words:
    if words.lengths is None:
        return Words(words.indices[kept], words.values)
    return Words(words.indices[np.repeat(kept, words.lengths)], words.values, words.lengths[kept])


# -- values and their counts -------------------------------------------------------------------------------------------


def hex_words(values: Values, modulus: int | None) -> Values:
    """Hexadecimal words of at most eight digits as numbers, taken modulo `modulus`."""
    words = pc.utf8_lpad(values, 8, "0")
    if not pc.all(pc.match_substring_regex(words, "^[0-9a-fA-F]{8}$")).as_py() and len(words):
        wrong = words.filter(pc.invert(pc.match_substring_regex(words, "^[0-9a-fA-F]{8}$")))
        raise ValueError(
            f"a categorical value must be a hexadecimal word of at most 8 digits, got {wrong[0].as_py()!r}."
        )
    digits = np.frombuffer("".join(words.to_pylist()).encode(), np.uint8).reshape(-1, 8).astype(np.int64)
    digits = np.where(digits > ord("9"), (digits | 32) - ord("a") + 10, digits - ord("0"))
    numbers = (digits << np.arange(28, -1, -4)).sum(1)
    return pa.array(numbers % modulus if modulus else numbers, pa.int64())


def merge_counts(pairs: Iterable[tuple[Values, Array]]) -> tuple[Values, Array]:
    """Distinct values, and the sum of the counts of each."""
    pieces = [pa.table({"value": values, "count": counts}) for values, counts in pairs]
    merged = pa.concat_tables(pieces).group_by("value", use_threads=False).aggregate([("count", "sum")])
    return _one_chunk(merged["value"]), _one_chunk(merged["count_sum"]).to_numpy()


def by_falling_count(values: Values, counts: Array) -> tuple[Values, Array]:
    """Sorted: the most frequent first, and among equals the smaller value (words by their bytes)."""
    table = pa.table({"value": values, "count": counts})
    table = table.take(pc.sort_indices(table, [("count", "descending"), ("value", "ascending")]))
    return _one_chunk(table["value"]), _one_chunk(table["count"]).to_numpy()


def places(values: Values, among: Values) -> Array:
    """Where each value stands in `among`, or -1."""
    return pc.fill_null(pc.index_in(pc.cast(values, among.type), value_set=among), -1).to_numpy().astype(np.int64)


def concatenate(pieces: list[Values]) -> Values:
    """Arrays one after the other; of integers and words together, words."""
    kinds = {piece.type for piece in pieces}
    return pa.concat_arrays([pc.cast(piece, pa.string()) for piece in pieces] if len(kinds) > 1 else pieces)


def save_vocabulary(path: Path, values: Values, counts: Array) -> None:
    """Parquet: the value with id `i` is in row `i - 1`."""
    pq.write_table(pa.table({"value": values, "count": counts}), path, compression="zstd")


def load_vocabulary(path: Path) -> tuple[Values, Array]:
    """Values by falling count, and their counts."""
    with parquet_errors(path):
        table = pq.read_table(path, columns=["value", "count"])
    return _one_chunk(table["value"]), _one_chunk(table["count"]).to_numpy()


# -- blocks on disk ----------------------------------------------------------------------------------------------------


def save_block(path: Path, numbers: Mapping[str, Array], words: Mapping[str, Words]) -> None:
    """One file for the columns with a number for each row, and one for each multi-hot column."""
    columns = {name: pa.array(column) for name, column in numbers.items()}
    for name, column in words.items():
        encoded = _encoded(column)
        if column.lengths is None:
            columns[name] = encoded
        else:
            columns[f"{name} lengths"] = pa.array(column.lengths)
            _save_table(path.with_name(f"{path.name}.{list(words).index(name)}"), {name: encoded})
    _save_table(path, columns)


def load_numbers(path: Path, name: str) -> Array:
    """One column of numbers."""
    return _load_column(path, name).to_numpy(zero_copy_only=False)


def load_words(path: Path, name: str) -> Words:
    """One column of words, each row with one."""
    column = _load_column(path, name)
    return Words(pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False), column.dictionary)


def load_bags(path: Path, name: str, place: int) -> Words:
    """One multi-hot column, the `place`-th column of words."""
    words = load_words(path.with_name(f"{path.name}.{place}"), name)
    return Words(words.indices, words.values, load_numbers(path, f"{name} lengths"))


def _save_table(path: Path, columns: Mapping[str, Any]) -> None:
    table = pa.table(dict(columns))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _load_column(path: Path, name: str) -> Any:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False))
        batches = [reader.get_batch(number).column(name) for number in range(reader.num_record_batches)]
    return batches[0] if batches else pa.array([], pa.float64())


def write_text(file: Any, columns: list[Array | Words]) -> None:
    """Lines with tabs between their columns; a word with index -1 is empty. For made files."""
    arrays = [
        _encoded(column).dictionary_decode() if isinstance(column, Words) else pa.array(column) for column in columns
    ]
    table = pa.table({str(place): array for place, array in enumerate(arrays)})
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    pyarrow.csv.write_csv(table, file, options)


def as_values(words: list[str]) -> Values:
    """Words as an arrow array."""
    return pa.array(words, pa.string())


def _encoded(words: Words) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(words.indices, mask=words.indices < 0), words.values)
