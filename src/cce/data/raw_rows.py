"""New raw rows, wherever they are: a file, standard input, a frame or a list of dictionaries → blocks of columns.

They are read as the rows of a data set were; nothing is stored on disk.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cce.data.prepare.arrow import (
    frame_blocks,
    json_names,
    parquet_blocks,
    parquet_columns,
    parquet_groups,
    parse_json_lines,
    parse_text,
    record_blocks,
)
from cce.data.prepare.inputs import Input, line_blocks
from cce.data.prepare.reading import PARQUET_ROWS, well_formed
from cce.data.raw_format import FORMATS, STANDARD, check_columns, find_format, text_reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cce.data.prepare.arrow import RawBlock
    from cce.data.prepare.columns import Columns, Reading

TEXT_BYTES = 1 << 23  # of a block


@dataclass(frozen=True)
class RawRows:
    """How new rows are read: as those of a data set with these columns.

    has_names: whether columns of the data set were found by name, rather than by their position in a line.
    has_labels: whether labels and weights are read, and rows that a data set leaves out by their label are left out.
    """

    of_data: Columns
    reading: Reading
    has_names: bool = True
    has_labels: bool = False

    @property
    def columns(self) -> Columns:
        """The columns that are read."""
        inputs = self.of_data.inputs
        return replace(inputs, label=self.of_data.label, weight=self.of_data.weight) if self.has_labels else inputs

    def blocks(self, rows: Any, *, form: str | None = None) -> Iterator[RawBlock]:
        """The rows of a path, of standard input ("-"), of a frame or of a list of dictionaries, checked, in order.

        form: what a file is, if the end of its name does not say so: csv, tsv, parquet or jsonl.
        """
        is_file, num_lines = isinstance(rows, str | Path), 0
        for raw in self._file_blocks(rows, form) if is_file else self._blocks_in_memory(rows):
            block = well_formed(raw, self.columns, self.reading)
            if block.bad:
                line, reason = min(block.bad)
                raise ValueError(f"{rows if is_file else 'rows'}, row {num_lines + line + 1}: {reason}.")
            num_lines += block.num_lines
            yield self._used(block)

    def _used(self, block: RawBlock) -> RawBlock:
        label, dropped = self.columns.label, self.reading.drop_label
        return block if label is None or dropped is None else block.keep(block.numbers[label] != dropped)

    def _blocks_in_memory(self, rows: Any) -> Iterator[RawBlock]:
        if hasattr(rows, "__arrow_c_stream__"):
            return frame_blocks(rows, self.columns, self.reading, PARQUET_ROWS)
        if isinstance(rows, list | tuple):
            return record_blocks(rows, self.columns, self.reading, PARQUET_ROWS)
        kinds = (
            "a path, a list of dictionaries or a frame with __arrow_c_stream__ (pandas from 2.2 on, polars, pyarrow)"
        )
        raise TypeError(f"rows must be {kinds}, got {type(rows).__name__}.")

    def _file_blocks(self, path: str | Path, form: str | None) -> Iterator[RawBlock]:
        is_standard = str(path) == STANDARD
        form = find_format(path, form, default=None if self.has_names else "tsv")
        by_columns = FORMATS[form].by_columns
        if not is_standard:
            Input(Path(path)).check(as_lines=not by_columns)
        try:
            with _standard_input() if is_standard else Input(Path(path)).open() as stream:
                if by_columns:
                    with _on_disk(stream, None if is_standard else Path(path)) as file:
                        yield from self._parquet_blocks(file)
                else:
                    yield from self._text_blocks(stream, form)
        except ValueError as error:
            raise (error if str(path) in str(error) else ValueError(f"{path}: {error}")) from error

    def _parquet_blocks(self, path: Path) -> Iterator[RawBlock]:
        check_columns("it", self.columns.used, parquet_columns(path))
        for group in range(len(parquet_groups(path))):
            yield from parquet_blocks(path, group, self.columns, self.reading, PARQUET_ROWS)

    def _text_blocks(self, stream: IO[bytes], form: str) -> Iterator[RawBlock]:
        texts = (text for _, text in line_blocks(stream, TEXT_BYTES))
        first = next(texts, b"")
        if not first:
            raise ValueError("it must hold rows, and it is empty.")
        if FORMATS[form].is_json:
            check_columns("JSON lines", self.columns.used, json_names(first))
            for text in itertools.chain([first], texts):
                yield parse_json_lines(text, self.columns, self.reading)
            return
        head, line_end, rest = first.partition(b"\n")
        reading = text_reading(
            *(head, FORMATS[form].delimiter, self.columns.used, self.reading),
            label=self.of_data.label,
            has_names=self.has_names,
        )
        for text in itertools.chain([rest if reading.has_header else head + line_end + rest], texts):
            if text:
                yield parse_text(text, self.columns, reading)


@contextmanager
def _standard_input() -> Iterator[IO[bytes]]:
    yield sys.stdin.buffer


@contextmanager
def _on_disk(stream: IO[bytes], path: Path | None) -> Iterator[Path]:
    """The path itself, or a temporary file of what a stream holds: Parquet is read from its end."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "input.parquet"
        with copy.open("wb") as file:
            shutil.copyfileobj(stream, file)
        yield copy
