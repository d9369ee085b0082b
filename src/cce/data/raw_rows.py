"""New raw rows, wherever they are (a file, standard input, a frame, a list of dictionaries) → batches, with the
columns, ids and transforms of the data set that a model was trained on.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch

from cce.data.arrow import (
    RawBlock,
    Words,
    as_texts,
    frame_blocks,
    json_names,
    parquet_blocks,
    parquet_columns,
    parquet_groups,
    parse_json_lines,
    parse_text,
    record_blocks,
)
from cce.data.loader import cut_batch, join_bags
from cce.data.preparation.reading import PARQUET_ROWS, clean_columns, well_formed
from cce.data.raw_files import FORMATS, STANDARD, Input, check_columns, find_format, line_blocks, text_reading
from cce.schema import Batch, Schema

if TYPE_CHECKING:
    from cce.data.preparation.job import Columns, Reading
    from cce.data.vocabulary import Vocabulary

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
            Input.of(Path(path)).check(as_lines=not by_columns)
        elif by_columns:
            raise ValueError("standard input must be text: csv, tsv or jsonl; got 'parquet'.")
        try:
            if by_columns:
                yield from self._parquet_blocks(Path(path))
                return
            with nullcontext(sys.stdin.buffer) if is_standard else Input.of(Path(path)).open() as stream:
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


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows as `raw_rows` reads them. Unseen values have id 0; missing ones are a value like any other."""

    schema: Schema
    raw_rows: RawRows
    vocabularies: Mapping[str, Vocabulary]

    def batches(self, rows: Any, *, batch_size: int, form: str | None = None) -> Iterator[Batch]:
        """The batches of rows of any kind (see `RawRows.blocks`), in order. Labels are NaN where none are read."""
        for raw in self.raw_rows.blocks(rows, form=form):
            batch = self.encode(raw)
            whole, rest = divmod(len(batch), batch_size)
            if len(batch):
                yield from cut_batch(batch, [batch_size] * whole + ([rest] if rest else []))

    def encode(self, raw: RawBlock) -> Batch:
        """All rows of a block."""
        columns, num_rows = self.raw_rows.columns, len(raw.lines)
        clean = clean_columns(raw, columns, self.raw_rows.reading)
        dense = [clean.numbers[f"dense {index}"] for index in range(len(self.schema.dense))]
        ids, offsets = self._ids(clean.words, num_rows)
        labels = clean.numbers.get("label", np.full(num_rows, np.nan, np.float32))
        weights = clean.numbers.get("weight")
        return Batch(
            dense=torch.from_numpy(np.stack(dense, 1) if dense else np.empty((num_rows, 0), np.float32)),
            ids=torch.from_numpy(ids),
            labels=torch.from_numpy(labels),
            offsets=None if offsets is None else torch.from_numpy(offsets),
            weights=None if weights is None else torch.from_numpy(weights),
        )

    def _ids(self, words: Mapping[str, Words], num_rows: int) -> tuple[np.ndarray, np.ndarray | None]:
        names = [feature.name for feature in self.schema.features]
        ids = [self._ids_of(name, words[name]) for name in names]
        if not self.schema.is_multi_hot:
            return np.stack(ids, 1), None
        lengths = [words[name].lengths for name in names]
        ones = np.ones(num_rows, np.int64)
        return join_bags([(values, ones if each is None else each) for values, each in zip(ids, lengths, strict=True)])

    def _ids_of(self, name: str, words: Words) -> np.ndarray:
        """Distinct values are looked up once; the last id is that of missing values, whose index is -1."""
        vocabulary = self.vocabularies[name]
        texts = as_texts(words.values, whole=vocabulary.kind == "integers")
        return np.concatenate([vocabulary.find(texts), vocabulary.find([""])])[words.indices]
