"""New raw rows, wherever they are (a file, a frame, a list of dictionaries) → batches, with the columns,
ids and transforms of the data set that a model was trained on.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from cce.data.arrow.blocks import RawBlock, as_texts
from cce.data.arrow.tables import frame_blocks, json_blocks, parquet_blocks, parquet_columns, parse_text, record_blocks
from cce.data.loader import cut_batch, join_bags
from cce.data.preparation.job import Columns, Reading
from cce.data.preparation.reading import PARQUET_ROWS, clean_columns, well_formed
from cce.data.raw_files import FORMATS, JSON_LINES, Input, check_columns, find_format, line_blocks, split_header
from cce.data.vocabulary import Vocabulary
from cce.schema import Batch, Schema

TEXT_BYTES = 1 << 23  # of a block
KINDS = "a path, a list of dictionaries or a frame with __arrow_c_stream__ (pandas from 2.2 on, polars, pyarrow)"


@dataclass(frozen=True)
class RawRows:
    """How new rows are read: as those of a data set with these columns.

    has_names: whether columns of the data set were found by name, rather than by their position in a line.
    has_labels: whether labels and weights are read, and rows that a data set leaves out by their label are left out.
    has_times: whether times are read, if the data set has any.
    """

    of_data: Columns
    reading: Reading
    has_names: bool = True
    has_labels: bool = False
    has_times: bool = False

    @property
    def columns(self) -> Columns:
        inputs = replace(self.of_data.inputs, timestamp=self.of_data.timestamp if self.has_times else None)
        return replace(inputs, label=self.of_data.label, weight=self.of_data.weight) if self.has_labels else inputs

    def blocks(self, rows: Any) -> Iterator[RawBlock]:
        """The rows of a path, of a frame or of a list of dictionaries, checked, in order."""
        if isinstance(rows, str | Path):
            what, found = str(rows), self._file_blocks(Path(rows))
        elif hasattr(rows, "__arrow_c_stream__"):
            what, found = "rows", frame_blocks(rows, self.columns, self.reading, PARQUET_ROWS)
        elif isinstance(rows, list | tuple):
            what, found = "rows", record_blocks(rows, self.columns, self.reading, PARQUET_ROWS)
        else:
            raise TypeError(f"rows must be {KINDS}, got {type(rows).__name__}.")
        num_lines, label, dropped = 0, self.columns.label, self.reading.drop_label
        for raw in found:
            block = well_formed(raw, self.columns, self.reading)
            if block.bad:
                line, reason = min(block.bad)
                raise ValueError(f"{what}, row {num_lines + line + 1}: {reason}.")
            num_lines += block.num_lines
            yield block if label is None or dropped is None else block.keep(block.numbers[label] != dropped)

    def _file_blocks(self, path: Path) -> Iterator[RawBlock]:
        is_json = path.suffix == JSON_LINES
        found = FORMATS["csv" if is_json else find_format(path, default=None if self.has_names else "tsv")]
        Input(path).check()
        try:
            if is_json:
                yield from json_blocks(path, self.columns, self.reading, PARQUET_ROWS)
                return
            if found.by_columns:
                check_columns("it", self.columns.used, parquet_columns(path))
                yield from parquet_blocks(path, None, self.columns, self.reading, PARQUET_ROWS)
                return
            with Input(path).open() as stream:
                yield from self._text_blocks(stream, found.delimiter)
        except ValueError as error:
            raise (error if str(path) in str(error) else ValueError(f"{path}: {error}")) from error

    def _text_blocks(self, stream: IO[bytes], delimiter: str) -> Iterator[RawBlock]:
        texts = (text for _, text in line_blocks(stream, TEXT_BYTES))
        first = next(texts, b"")
        if not first:
            raise ValueError("it must hold rows, and it is empty.")
        head, line_end, rest = first.partition(b"\n")
        reading = self._text_reading(head, delimiter)
        for text in itertools.chain([rest if reading.has_header else head + line_end + rest], texts):
            if text:
                yield parse_text(text, self.columns, reading)

    def _text_reading(self, head: bytes, delimiter: str) -> Reading:
        """How lines of text are read: by the names in the first one, or as those of the data set, if it had no names.

        Lines may then lack the label.
        """
        names, used, of_data = split_header(head, delimiter, "its first line"), self.columns.used, self.reading
        if self.has_names or set(used) <= set(names):
            check_columns("it", used, names)
            return replace(of_data, names=names, delimiter=delimiter, quoted=True, has_header=True)
        without = tuple(name for name in of_data.names if name != self.of_data.label)
        count = len(split_header(head, of_data.delimiter, "its first line"))
        known = next((known for known in (of_data.names, without) if len(known) == count), None)
        if known is None:
            sizes = f"{len(of_data.names)} columns, or {len(without)} without a label"
            raise ValueError(
                f"it must have a first line with the names {', '.join(used)}, or lines of {sizes}, got {count}."
            )
        check_columns("it", used, known)
        return replace(of_data, names=known)


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows as `raw_rows` reads them. Unseen values have id 0; missing ones are a value like any other."""

    schema: Schema
    raw_rows: RawRows
    vocabularies: Mapping[str, Vocabulary]

    def batches(self, rows: Any, *, batch_size: int) -> Iterator[Batch]:
        """The batches of rows of any kind (see `RawRows.blocks`), in order. Labels are NaN where none are read."""
        for raw in self.raw_rows.blocks(rows):
            yield from self.cut(raw, batch_size)

    def cut(self, raw: RawBlock, batch_size: int, *, rank: int = 0, world_size: int = 1) -> list[Batch]:
        """The batches of a block, or a rank's share of each."""
        batch = self.encode(raw)
        whole, rest = divmod(len(batch), batch_size)
        lengths = [batch_size] * whole + ([rest] if rest else [])
        bounds = [[length * each // world_size for each in range(world_size + 1)] for length in lengths]
        shares = [end - begin for cuts in bounds for begin, end in itertools.pairwise(cuts)]
        return cut_batch(batch, shares)[rank::world_size] if shares else []

    def encode(self, raw: RawBlock) -> Batch:
        num_rows, ones = len(raw.lines), np.ones(len(raw.lines), np.int64)
        clean = clean_columns(raw, self.raw_rows.columns, self.raw_rows.reading)
        dense = [clean.numbers[f"dense {index}"] for index in range(len(self.schema.dense))]
        weights, bags = clean.numbers.get("weight"), []
        for feature in self.schema.features:
            words, vocabulary = clean.words[feature.name], self.vocabularies[feature.name]
            texts = as_texts(words.values, whole=vocabulary.kind == "integers")
            # distinct values are looked up once; the last id is that of missing values, whose index is -1
            ids = np.concatenate([vocabulary.find(texts), vocabulary.find([""])])[words.indices]
            bags.append((ids, ones if words.lengths is None else words.lengths))
        ids, offsets = join_bags(bags)
        is_multi_hot = self.schema.is_multi_hot
        return Batch(
            dense=torch.from_numpy(np.stack(dense, 1) if dense else np.empty((num_rows, 0), np.float32)),
            ids=torch.from_numpy(ids if is_multi_hot else ids.reshape(len(bags), num_rows).T.copy()),
            labels=torch.from_numpy(clean.numbers.get("label", np.full(num_rows, np.nan, np.float32))),
            offsets=torch.from_numpy(offsets) if is_multi_hot else None,
            weights=None if weights is None else torch.from_numpy(weights),
        )
