"""JSON lines: an object a line, its keys are the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json

from cce.data.prepare.arrow.blocks import RawBlock, first_line
from cce.data.prepare.arrow.frames import named_block
from cce.data.raw_format import check_columns

if TYPE_CHECKING:
    from cce.data.prepare.columns import Columns, Reading


def parse_json(text: bytes, columns: Columns, reading: Reading, *, check: bool) -> RawBlock:
    """The rows of whole lines. A key that a row lacks is a missing value; with `check`, some row must have it."""
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text), pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        )
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"lines must be JSON objects whose values are of one type a column: {first_line(error)}"
        ) from error
    if check:
        check_columns("JSON lines", columns.used, table.column_names)
    missing = [name for name in columns.used if name not in table.column_names]
    for name in missing:
        table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return named_block(table.select(list(columns.used)), columns, reading)
