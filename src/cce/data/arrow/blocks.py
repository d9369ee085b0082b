"""The columns of a block of rows, in memory and on disk; and their values, with counts.

Columns of words are stored as a *dictionary*, the values of a block once each, and an index for each row (-1: missing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from cce.data.preparation.job import Columns, Reading
from cce.hashing import Texts, arrow_texts

Values: TypeAlias = Any  # an arrow array
Array: TypeAlias = Any  # a numpy array: what pyarrow gives has no types


@dataclass
class Words:
    """A column of words: `values[indices[row]]`, or missing where the index is -1."""

    indices: Array  # int32
    values: Values
    lengths: Array | None = None  # of a multi-hot column: words of each row

    def keep(self, kept: Array) -> Words:
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
        numbers = {name: column[kept] for name, column in self.numbers.items()}
        words = {name: column.keep(kept) for name, column in self.words.items()}
        return RawBlock(numbers, words, self.lines[kept], self.num_lines, self.bad)


class NotNumbersError(ValueError):
    """A numeric column holds something else."""


# -- from arrow --------------------------------------------------------------------------------------------------------


def raw_block(
    table: Any, columns: Columns, reading: Reading, lines: Array | None = None, bad: Sequence[tuple[int, str]] = ()
) -> RawBlock:
    """The rows of a table, which are all lines there are but for the bad ones."""
    numbers = {
        name: (as_times if name == columns.timestamp else _as_numbers)(table[name], name, reading.missing)
        for name in dict.fromkeys((*columns.numbers.values(), *columns.dense))
    }
    words = {name: _as_words(table[name], name, reading.missing) for name in columns.categorical}
    words |= {name: _as_bags(table[name], name, reading) for name in columns.multi_hot}
    lines = np.arange(table.num_rows) if lines is None else lines
    return RawBlock(numbers, words, lines, table.num_rows + len(bad), list(bad))


def _as_numbers(column: Any, name: str, missing: tuple[str, ...]) -> Array:
    column = one_chunk(column)
    if pa.types.is_dictionary(column.type):
        return _of_rows(column, _as_numbers(column.dictionary, name, missing))
    try:
        if is_text(column.type):
            words = pc.cast(column, pa.string())
            is_missing = pc.is_in(words, pa.array(missing, pa.string()))
            column = pc.utf8_trim_whitespace(pc.if_else(is_missing, pa.scalar(None, pa.string()), words))
        numbers = pc.cast(column, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {name!r} must hold numbers, got {column.type}: {first_line(error)}"
        raise NotNumbersError(message) from error
    return pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)


def as_times(column: Any, name: str, missing: tuple[str, ...]) -> Array:
    """Seconds: numbers as they are, or times of ISO 8601 (UTC, if they name no zone); NaN for anything else."""
    column = one_chunk(column)
    column = column.dictionary_encode() if is_text(column.type) else column
    if pa.types.is_dictionary(column.type):
        if is_text(column.dictionary.type):
            return _of_rows(column, np.array([_seconds(text) for text in column.dictionary.to_pylist()]))
        return _of_rows(column, as_times(column.dictionary, name, missing))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        micros = pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64())
        return pc.fill_null(pc.cast(micros, pa.float64()), float("nan")).to_numpy(zero_copy_only=False) / 1e6
    return _as_numbers(column, name, missing)


def _of_rows(column: Any, numbers: Array) -> Array:
    """The number of each row, of those of the distinct values of a dictionary column; NaN where there is none."""
    return np.append(numbers, math.nan)[pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)]


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
    if is_text(column.type):
        column = pc.split_pattern(pc.cast(column, pa.string()), reading.separator)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise ValueError(f"multi-hot column {name!r} must hold lists or text, got {column.type}.")
    words = _as_words(pc.list_flatten(column), name, reading.missing)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    present = words.indices >= 0
    rows = np.repeat(np.arange(len(lengths)), lengths)[present]
    return Words(words.indices[present], words.values, np.bincount(rows, minlength=len(lengths)))


def is_text(kind: Any) -> bool:
    """Whether a type is one of strings, or of nothing at all."""
    return kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def _plain(values: Any) -> Any:
    """Integers as int64, and everything else as words."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.cast(values, pa.int64() if pa.types.is_integer(values.type) else pa.string())


def first_line(error: Exception) -> str:
    """What arrow says, in one line."""
    return str(error).partition("\n")[0]


def one_chunk(column: Any) -> Any:
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


# -- values and their counts -------------------------------------------------------------------------------------------

LARGEST = str(2**63 - 1)
NO_NUMBER = "?"


def as_values(words: list[str]) -> Values:
    return pa.array(words, pa.string())


def hex_words(values: Values, modulus: int | None) -> Values:
    """Hexadecimal words of at most eight digits as integers, taken modulo `modulus`."""
    wrong = values.filter(pc.invert(pc.match_substring_regex(values, "^[0-9a-fA-F]{1,8}$")))
    if len(wrong):
        got = repr(wrong[0].as_py())
        raise ValueError(f"a categorical value must be a hexadecimal word of at most 8 digits, got {got}.")
    return pa.array([int(word, 16) % (modulus or 2**32) for word in values.to_pylist()], pa.int64())


def merge_counts(pairs: Sequence[tuple[Values, Array]]) -> tuple[Values, Array]:
    """Distinct values, and the sum of the counts of each; some pieces may hold words and others integers."""
    values, counts = concatenate([values for values, _ in pairs]), np.concatenate([counts for _, counts in pairs])
    table = pa.table({"value": values, "count": counts})
    merged = table.group_by("value", use_threads=False).aggregate([("count", "sum")])
    return one_chunk(merged["value"]), one_chunk(merged["count_sum"]).to_numpy()


def by_falling_count(values: Values, counts: Array) -> tuple[Values, Array]:
    """Sorted: the most frequent first, and among equals the smaller value (words by their bytes)."""
    table = pa.table({"value": values, "count": counts})
    table = table.take(pc.sort_indices(table, [("count", "descending"), ("value", "ascending")]))
    return one_chunk(table["value"]), one_chunk(table["count"]).to_numpy()


def find_values(values: Values, among: Values) -> Array:
    """The index of each value in `among`, or -1."""
    values = whole_numbers(values) if pa.types.is_integer(among.type) else pc.cast(values, among.type)
    found = pc.index_in(values, value_set=among, skip_nulls=True)
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def whole_numbers(values: Values) -> Values:
    """Values as int64; words that are no such number are null."""
    if pa.types.is_integer(values.type):
        return pc.cast(values, pa.int64())
    words = pc.cast(values, pa.string())
    digits = pc.utf8_ltrim(words, "-0")
    is_short = pc.less(pc.utf8_length(digits), len(LARGEST))
    fits = pc.or_(is_short, pc.and_(pc.equal(pc.utf8_length(digits), len(LARGEST)), pc.less_equal(digits, LARGEST)))
    is_whole = pc.and_(pc.match_substring_regex(words, r"^-?[0-9]+$"), fits)
    return pc.cast(pc.if_else(is_whole, words, pa.scalar(None, pa.string())), pa.int64())


def is_whole(values: Values) -> bool:
    return bool(pa.types.is_integer(values.type))


def as_texts(values: Values, *, whole: bool) -> Texts:
    """Offsets (int64) and UTF-8 bytes of the text of each value; of numbers, if `whole`, their decimal digits.

    A missing value has the empty text, which no other value has. What is no number where one is due is `NO_NUMBER`.
    """
    words = pc.cast(whole_numbers(values) if whole else values, pa.large_string())
    return arrow_texts(pc.if_else(pc.is_null(values), "", pc.fill_null(words, NO_NUMBER)))


def with_missing(values: Values) -> Values:
    return pa.concat_arrays([pa.nulls(1, values.type), values])


def missing_id(values: Values) -> int:
    """The id of the missing value in a vocabulary, or 0 if it has none."""
    nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    return int(nulls[0]) + 1 if len(nulls) else 0


def concatenate(pieces: list[Values]) -> Values:
    """Arrays one after the other; of integers and words together, words."""
    kinds = {piece.type for piece in pieces}
    return pa.concat_arrays([pc.cast(piece, pa.string()) for piece in pieces] if len(kinds) > 1 else pieces)
