"""What workers do with blocks: the first step of a preparation reads a piece of a raw file into blocks of columns on
disk, and tells what was seen on the way; the last one encodes them as records.

A block is stored in the work folder until the data set is finished. A piece whose summaries are on disk is not read
again.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cce.data.arrow.blocks import RawBlock, Words, hex_words, load_numbers, load_words, save_block
from cce.data.arrow.tables import parquet_blocks, parse_text
from cce.data.preparation.job import Columns, Reading
from cce.data.preparation.vocabulary import ids_file, split_file, unit_hash
from cce.data.raw_files import BLOCK_BYTES, Input
from cce.data.record_format import (
    OFFSET,
    SPLITS,
    id_dtype,
    offsets_file,
    record_dtype,
    rows_file,
    values_file,
    write_at,
)
from cce.files import named_full_disk, write_atomic
from cce.schema import Schema

PARQUET_ROWS = 1 << 17  # rows of a block
REPORTED = 10  # malformed rows that a block remembers by line
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Piece:
    """What one worker reads: a block of a plain text, a row group of a Parquet file, or a whole compressed text."""

    input: Input
    file: int  # its index among the inputs
    index: int | None  # of the block or row group; None for a whole file
    folder: Path
    columns: Columns
    reading: Reading
    block_bytes: int = BLOCK_BYTES

    @property
    def summary_file(self) -> Path:
        """The file of the summaries of its blocks, once all are written."""
        return self.folder / f"{self.file:05d}-{self.index or 0:07d}.json"


def read_piece(piece: Piece) -> list[dict[str, Any]]:
    """Read and store the blocks of a piece; return a summary of each, in order."""
    if piece.summary_file.exists():
        summaries: list[dict[str, Any]] = json.loads(piece.summary_file.read_text(encoding="utf-8"))
        return summaries
    summaries = []
    try:
        for index, (offset, raw) in enumerate(_raw_blocks(piece)):
            path = piece.folder / f"{piece.summary_file.stem}-{index:06d}.arrow"
            with named_full_disk(path):
                summaries.append({"name": path.name, "file": piece.file, **_keep_block(piece, path, offset, raw)})
        write_atomic(piece.summary_file, json.dumps(summaries))
    except ValueError as error:
        named = str(piece.input) in str(error)
        raise (error if named else ValueError(f"{piece.input}: {error}")) from error
    return summaries


def _raw_blocks(piece: Piece) -> Iterator[tuple[int, RawBlock]]:
    """Blocks as they were read, each with an index for its first row that no other row of the file has."""
    columns, reading = piece.columns, piece.reading
    if piece.input.is_parquet:
        assert piece.index is not None
        offset = piece.index << 32
        for raw in parquet_blocks(piece.input.path, piece.index, columns, reading, PARQUET_ROWS):
            yield offset, raw
            offset += raw.num_lines
        return
    one = piece.index is not None and [piece.input.block(piece.index, piece.block_bytes)]
    for offset, text in one or piece.input.blocks(piece.block_bytes):
        has_header = reading.has_header and offset == 0
        rows = text.partition(b"\n")[2] if has_header else text
        if rows:
            yield offset, parse_text(rows, columns, reading)


def _keep_block(piece: Piece, path: Path, offset: int, raw: RawBlock) -> dict[str, Any]:
    """Write the rows of a block that are used, and return its summary."""
    raw = well_formed(raw, piece.columns, piece.reading)
    num_read = len(raw.lines)
    raw = raw.keep(_kept(raw, offset, piece))
    clean = clean_columns(raw, piece.columns, piece.reading)
    if len(raw.lines):
        save_block(path, clean.numbers, {f"word {name}": column for name, column in clean.words.items()})
    bad = sorted(raw.bad)
    return {
        "num_rows": len(raw.lines),
        "num_lines": raw.num_lines,
        "num_dropped": num_read - len(raw.lines),
        "num_bad": len(bad),
        "bad": bad[:REPORTED],
        "missing": clean.missing,
        "negative": clean.negative,
    }


@dataclass(frozen=True)
class CleanColumns:
    """The columns of a block as a data set holds them, except ids: numbers by role, words by name."""

    numbers: dict[str, np.ndarray]  # "label", "weight", …, and "dense 0", "dense 1", …
    words: dict[str, Words]
    missing: dict[str, int]  # values of dense columns
    negative: dict[str, int]


def clean_columns(raw: RawBlock, columns: Columns, reading: Reading) -> CleanColumns:
    """Labels by the threshold, dense values transformed, hexadecimal words as integers."""
    numbers: dict[str, np.ndarray] = {
        role: raw.numbers[name].astype(np.float32 if role == "weight" else np.float64)
        for role, name in columns.numbers.items()
    }
    if "label" in numbers:
        labels, threshold = numbers["label"], reading.threshold
        numbers["label"] = (labels if threshold is None else labels >= threshold).astype(np.float32)
    missing, negative = {}, {}
    for index, name in enumerate(columns.dense):
        column = raw.numbers[name]
        numbers[f"dense {index}"], missing[name], negative[name] = _dense(column, name, reading)
    words = raw.words
    if reading.is_hex:
        words = {
            name: Words(column.indices, hex_words(column.values, reading.modulus), column.lengths)
            for name, column in words.items()
        }
    return CleanColumns(numbers, words, missing, negative)


def well_formed(raw: RawBlock, columns: Columns, reading: Reading) -> RawBlock:
    """Rows whose values are valid; the others are malformed."""
    for role, name in columns.numbers.items():
        rule = "a number or a time of ISO 8601" if role == "timestamp" else "a number"
        raw = _check_numbers(raw, name, np.isfinite, rule)
    if reading.threshold is None and columns.label is not None:
        allowed = (0, 1) if reading.drop_label is None else (0, 1, reading.drop_label)
        raw = _check_numbers(raw, columns.label, lambda x: np.isin(x, allowed), "0 or 1 without a threshold")
    if columns.weight is not None:
        raw = _check_numbers(raw, columns.weight, lambda x: (x >= 0) & (x <= LARGEST), f"in [0, {LARGEST:.1e}]")
    for name in columns.dense:  # NaN is a missing value
        rule = f"in [-{LARGEST:.1e}, {LARGEST:.1e}]"
        raw = _check_numbers(raw, name, lambda x: np.isnan(x) | (np.abs(x) <= LARGEST), rule)
    return raw


def _check_numbers(raw: RawBlock, name: str, is_right: Callable[[np.ndarray], np.ndarray], rule: str) -> RawBlock:
    column = raw.numbers[name]
    right = is_right(column)
    if right.all():
        return raw
    reasons = (f"{name} must be {rule}, got {'nothing' if np.isnan(x) else f'{x:g}'}" for x in column[~right])
    raw.bad.extend(zip(raw.lines[~right].tolist(), reasons, strict=True))
    return raw.keep(right)


def _kept(raw: RawBlock, offset: int, piece: Piece) -> np.ndarray:
    """Which rows are used: by label, then by a hash of the row's offset in the file."""
    reading = piece.reading
    labels = raw.numbers[piece.columns.numbers["label"]]
    kept = np.ones(len(labels), bool) if reading.drop_label is None else labels != reading.drop_label
    if reading.sample == "all":
        return kept
    chosen = unit_hash(offset + raw.lines + (piece.file << 48), reading.seed) < reading.keep
    return kept & (chosen | (labels > 0)) if reading.sample == "negatives" else kept & chosen


def _dense(column: np.ndarray, name: str, reading: Reading) -> tuple[np.ndarray, int, int]:
    """A dense column transformed, and how many of its values were missing and negative.

    `log` is log(1 + x), with missing and negative values as 0. `standard` columns whose mean and deviation are not
    known yet stay as they are, with NaN where values are missing; they are scaled when rows are encoded.
    """
    missing = np.isnan(column)
    transform, num_missing = reading.transform_of(name), int(missing.sum())
    if transform == "standard":
        scale = next(((mean, deviation) for known, mean, deviation in reading.scales if known == name), None)
        return column if scale is None else scaled(column, *scale).astype(np.float32), num_missing, 0
    filled = np.where(missing, 0.0, column)
    if transform == "identity":
        return filled.astype(np.float32), num_missing, 0
    negative = filled < 0
    return np.log1p(np.maximum(filled, 0)).astype(np.float32), num_missing, int(negative.sum())


def scaled(column: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    """`(x - mean) / deviation`; a missing value is the mean."""
    return np.where(np.isnan(column), 0.0, (column - mean) / deviation)


# -- encoding ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockTask:
    """One block: where its rows and its bags begin in each split."""

    block: Path
    folder: Path
    schema: Schema
    columns: Columns
    row_starts: dict[str, int]
    value_starts: dict[tuple[str, int], int]
    scales: tuple[tuple[str, float, float], ...] = ()  # of dense columns that are not scaled yet: mean and deviation

    @property
    def done_file(self) -> Path:
        """There once the block is written."""
        return self.block.with_suffix(".done")


def encode_block(task: BlockTask) -> int:
    """Write the rows of a block; return how many there are."""
    codes = np.load(split_file(task.block))
    if task.done_file.exists():
        return len(codes)
    records = _records(task, len(codes))
    raw = records.view(np.uint8).reshape(len(records), -1)  # a copy of records need not copy the bytes between fields
    for split, start in task.row_starts.items():
        some = raw[codes == SPLITS.index(split)].reshape(-1).view(records.dtype)
        write_at(task.folder / rows_file(split), start, some)
    for index in range(len(task.columns.categorical), len(task.columns.features)):
        _write_bags(task, index, codes)
    task.done_file.touch()
    return len(codes)


def _records(task: BlockTask, num_rows: int) -> np.ndarray:
    records = np.zeros(num_rows, record_dtype(task.schema))
    records["label"] = load_numbers(task.block, "label")
    if task.schema.has_weights:
        records["weight"] = load_numbers(task.block, "weight")
    scales = {name: scale for name, *scale in task.scales}
    for index, name in enumerate(task.schema.dense):
        column = load_numbers(task.block, f"dense {index}")
        records["dense"][:, index] = scaled(column, *scales[name]) if name in scales else column
    for index, name in enumerate(task.columns.categorical):
        words = load_words(task.block, f"word {name}")
        records[f"id{index}"] = np.load(ids_file(task.block, index))[words.indices]  # the last one is for the index -1
    return records


def _write_bags(task: BlockTask, index: int, codes: np.ndarray) -> None:
    name = task.columns.features[index]
    words = load_words(task.block, f"word {name}", index)
    assert words.lengths is not None
    dtype = id_dtype(task.schema.features[index].num_embeddings)
    ids = np.load(ids_file(task.block, index))[words.indices].astype(dtype)
    code_of_ids = np.repeat(codes, words.lengths)
    for split, row_start in task.row_starts.items():
        code, start = SPLITS.index(split), task.value_starts[split, index]
        ends = start + words.lengths[codes == code].cumsum()
        write_at(task.folder / values_file(split, index), start, ids[code_of_ids == code])
        # the first offset of a file is its zero, so the end of row r is at r + 1
        write_at(task.folder / offsets_file(split, index), row_start + 1, ends.astype(OFFSET))
