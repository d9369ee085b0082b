"""Rows by columns: Parquet files by row group, frames of any library that speaks Arrow's C interface (pandas, polars,
pyarrow, …; none is imported), and lists of dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cce.data.arrow.blocks import Array, RawBlock, Values, first_line, one_chunk, raw_block
from cce.data.raw_files import check_columns

if TYPE_CHECKING:
    from cce.data.preparation.job import Columns, Reading


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
    """Names of a Parquet file's columns."""
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
            table = pa.table(batch)
            yield raw_block(table, columns, reading, np.arange(len(table)), [])


class TableWriter:
    """A Parquet file that is written block by block; `types` are those of its columns, by name, in Arrow's words."""

    def __init__(self, path: Path, types: Mapping[str, str]) -> None:
        self._schema = pa.schema(dict(types))
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows."""
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
            piece = batch.slice(start, num_rows).select(list(columns.used))
            yield named_block(pa.table(piece), columns, reading)


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
        yield named_block(pa.table(arrays), columns, reading)


def named_block(table: Any, columns: Columns, reading: Reading) -> RawBlock:
    """The columns of a table whose types may be of any library; numbers may be words, as in a text."""
    numbers = (*columns.numbers.values(), *columns.dense)
    for index, field in enumerate(table.schema):
        column, kind = _without_views(table[field.name]), _common_type(field.type)
        column = column if kind == column.type else column.cast(kind)
        if field.name in numbers and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            is_missing = pc.is_in(column, pa.array(reading.missing, kind))
            column = pc.utf8_trim_whitespace(pc.if_else(is_missing, pa.scalar(None, kind), column))
        table = table.set_column(index, field.name, column)
    return raw_block(table, columns, reading, np.arange(table.num_rows), [])


def _column(values: list[Any], name: str) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise ValueError(f"column {name!r} must hold values of one type: {first_line(error)}") from error


def _without_views(column: Any) -> Any:
    """A column of categories, of which Arrow cannot cast the words as polars has them."""
    if not pa.types.is_dictionary(column.type):
        return column
    words = _common_type(column.type.value_type)
    chunks = [pa.DictionaryArray.from_arrays(each.indices, each.dictionary.cast(words)) for each in column.chunks]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, words))


def _common_type(kind: Any) -> Any:
    """Strings and lists of views, as polars has them, as plain strings and lists; a column of nothing as strings."""
    if pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _common_type(kind.value_type))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.large_list(_common_type(kind.value_type))
    return kind
