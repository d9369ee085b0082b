"""The columns of a block of rows, in memory and on disk.

Columns of words are stored as a *dictionary*, the values of a block once each, and an index for each row (-1: missing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

if TYPE_CHECKING:
    from cce.data.preparation.job import Columns, Reading

Values: TypeAlias = Any  # an arrow array
Array: TypeAlias = Any  # a numpy array: what pyarrow gives has no types


@dataclass
class Words:
    """A column of words: `values[indices[row]]`, or missing where the index is -1."""

    indices: Array  # int32
    values: Values
    lengths: Array | None = None  # of a multi-hot column: words of each row

    def keep(self, kept: Array) -> Words:
        """The words of the rows where `kept` is true."""
        if self.lengths is None:
            return Words(self.indices[kept], self.values)
        return Words(self.indices[np.repeat(kept, self.lengths)], self.values, self.lengths[kept])


@dataclass
class RawBlock:
    """Some rows as they were read. `lines` are their indices in the block, from 0; `bad` are malformed lines."""

    numbers: dict[str, Array]  # float64 columns, NaN where missing
    words: dict[str, Words]
    lines: Array
    num_lines: int
    bad: list[tuple[int, str]] = field(default_factory=list)

    def keep(self, kept: Array) -> RawBlock:
        """The rows where `kept` is true."""
        numbers = {name: column[kept] for name, column in self.numbers.items()}
        words = {name: column.keep(kept) for name, column in self.words.items()}
        return RawBlock(numbers, words, self.lines[kept], self.num_lines, self.bad)


class NotNumbersError(ValueError):
    """A numeric column holds something else."""


# -- from arrow --------------------------------------------------------------------------------------------------------


def raw_block(table: Any, columns: Columns, reading: Reading, lines: Array, bad: list[tuple[int, str]]) -> RawBlock:
    """The columns of an arrow table."""
    numbers = {
        name: as_times(table[name]) if name == columns.timestamp else _as_numbers(table[name], name)
        for name in dict.fromkeys((*columns.numbers.values(), *columns.dense))
    }
    words = {name: _as_words(table[columns.column_of(name)], name, reading.missing) for name in columns.categorical}
    words |= {name: _as_bags(table[name], name, reading) for name in columns.multi_hot}
    return RawBlock(numbers, words, lines, table.num_rows + len(bad), bad)


def _as_numbers(column: Any, name: str) -> Array:
    try:
        numbers = pc.cast(column, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {name!r} must hold numbers, got {column.type}: {first_line(error)}"
        raise NotNumbersError(message) from error
    return one_chunk(pc.fill_null(numbers, float("nan"))).to_numpy(zero_copy_only=False)


def as_times(column: Any) -> Array:
    """Seconds: numbers as they are, or times of ISO 8601 (UTC, if they name no zone); NaN for anything else."""
    column = one_chunk(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        micros = pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64())
        return pc.fill_null(pc.cast(micros, pa.float64()), float("nan")).to_numpy(zero_copy_only=False) / 1e6
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return _as_numbers(column, "timestamp")
    coded = column.dictionary_encode()
    seconds = np.array([*(_seconds(text) for text in coded.dictionary.to_pylist()), math.nan])
    return seconds[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return math.nan
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _as_words(column: Any, name: str, missing: tuple[str, ...]) -> Words:
    column = one_chunk(column)
    try:
        if not pa.types.is_dictionary(column.type):
            column = _plain(column).dictionary_encode()
        values = _plain(column.dictionary)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name!r} must hold strings or integers, got {column.type}.") from error
    indices = pc.fill_null(pc.cast(column.indices, pa.int32()), -1).to_numpy(zero_copy_only=False)
    is_missing = pc.fill_null(pc.is_in(pc.cast(values, pa.string()), pa.array(missing)), True)  # noqa: FBT003
    if pc.any(is_missing).as_py():
        gone = np.append(is_missing.to_numpy(zero_copy_only=False), True)  # the last one is for the index -1
        indices = np.where(gone[indices], np.int32(-1), indices)
    return Words(indices, values)


def _as_bags(column: Any, name: str, reading: Reading) -> Words:
    """Lists, or words with a separator between them; missing words within a bag are left out."""
    column = one_chunk(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.split_pattern(column, reading.separator)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise ValueError(f"multi-hot column {name!r} must hold lists or text, got {column.type}.")
    words = _as_words(pc.list_flatten(column), name, reading.missing)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    present = words.indices >= 0
    rows = np.repeat(np.arange(len(lengths)), lengths)[present]
    return Words(words.indices[present], words.values, np.bincount(rows, minlength=len(lengths)))


def _plain(values: Any) -> Any:
    """Integers as int64, and everything else as words."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.cast(values, pa.int64() if pa.types.is_integer(values.type) else pa.string())


def first_line(error: Exception) -> str:
    """What arrow says, in one line."""
    return str(error).partition("\n")[0]


def one_chunk(column: Any) -> Any:
    """A column as one array."""
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(combined, pa.ChunkedArray):  # an empty column has no chunk at all
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


# -- blocks on disk ----------------------------------------------------------------------------------------------------


def save_block(path: Path, numbers: Mapping[str, Array], words: Mapping[str, Words]) -> None:
    """One file for the columns with one value a row, and one for each multi-hot column."""
    columns = {name: pa.array(column) for name, column in numbers.items()}
    for name, column in words.items():
        array = pa.DictionaryArray.from_arrays(pa.array(column.indices, mask=column.indices < 0), column.values)
        if column.lengths is None:
            columns[name] = array
        else:
            columns[f"{name} lengths"] = pa.array(column.lengths)
            _save_table(path.with_name(f"{path.name}.{list(words).index(name)}"), {name: array})
    _save_table(path, columns)


def load_numbers(path: Path, name: str) -> Array:
    """One numeric column."""
    return _load_column(path, name).to_numpy(zero_copy_only=False)


def load_words(path: Path, name: str, bag: int | None = None) -> Words:
    """One column of words; bag: its index among them, if it is multi-hot."""
    column = _load_column(path if bag is None else path.with_name(f"{path.name}.{bag}"), name)
    indices = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)
    return Words(indices, column.dictionary, None if bag is None else load_numbers(path, f"{name} lengths"))


def _save_table(path: Path, columns: Mapping[str, Any]) -> None:
    table = pa.table(dict(columns))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _load_column(path: Path, name: str) -> Any:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False))
        batches = [reader.get_batch(index).column(name) for index in range(reader.num_record_batches)]
    return batches[0] if batches else pa.array([], pa.float64())
