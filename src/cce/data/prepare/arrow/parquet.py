"""Parquet: raw files by row group, and vocabularies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cce.data.prepare.arrow.blocks import Array, RawBlock, Values, first_line, one_chunk, raw_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cce.data.prepare.columns import Columns, Reading


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


def parquet_blocks(path: Path, group: int, columns: Columns, reading: Reading, num_rows: int) -> Iterator[RawBlock]:
    """A row group in blocks of at most `num_rows` rows."""
    with parquet_errors(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(num_rows, row_groups=[group], columns=list(columns.used), use_threads=False):
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
