"""Rows in memory: frames of any library that speaks Arrow's C interface (pandas, polars, pyarrow, …), and lists of
dictionaries. No frame library is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cce.data.prepare.arrow.blocks import RawBlock, first_line, raw_block
from cce.data.raw_format import check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cce.data.prepare.columns import Columns, Reading


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
