"""JSON lines: an object a line, whose keys are the columns. A key that is not there is a missing value."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cce.data.prepare.arrow.blocks import RawBlock, first_line, raw_block

if TYPE_CHECKING:
    from cce.data.prepare.columns import Columns, Reading


def parse_json_lines(text: bytes, columns: Columns, reading: Reading) -> RawBlock:
    """The rows of whole lines. Lines that are no object, or hold a value of a wrong kind, are bad."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: list[tuple[int, str]] = []
    for index, line in enumerate(_lines(text)):
        try:
            row = _parse(line)
            rows.append({name: _plain(row.get(name), name, columns, reading) for name in columns.used})
            lines.append(index)
        except ValueError as error:
            bad.append((index, str(error)))
    table = pa.table({name: _column([row[name] for row in rows], name) for name in columns.used})
    return raw_block(table, columns, reading, np.array(lines, np.int64), bad)


def json_names(text: bytes) -> list[str]:
    """The keys of the objects of whole lines, in order; lines that are no objects are passed over."""
    found: dict[str, None] = {}
    for line in _lines(text):
        with suppress(ValueError):
            found |= dict.fromkeys(_parse(line))
    return list(found)


def _lines(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _parse(line: bytes) -> dict[str, Any]:
    """The object of a line."""
    try:
        row = json.loads(line)
    except ValueError as error:  # neither JSON nor UTF-8
        raise ValueError(f"a line must be JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"a line must be a JSON object, got {type(row).__name__}")
    return row


def _plain(value: Any, name: str, columns: Columns, reading: Reading) -> Any:
    """Numbers of numeric columns as floats, and everything else as words: a column has one type in all blocks."""
    if value is None:
        return None
    if name in (*columns.numbers.values(), *columns.dense) and name != columns.timestamp:
        return None if isinstance(value, str) and value in reading.missing else _number(value, name)
    if isinstance(value, list):
        return [_word(item, name) for item in value if item is not None]
    return _word(value, name)


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number, got {value!r}") from error


def _word(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{name} must be a word, a number or a list of them, got {type(value).__name__}")


def _column(values: list[Any], name: str) -> Any:
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"column {name!r} must hold lists in all rows or in none: {first_line(error)}") from error
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column
