"""The last step of a preparation: a block of columns → records, at their positions in the files of the splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cce.data.manifest import SPLITS
from cce.data.prepare.arrow import load_bags, load_numbers, load_words
from cce.data.prepare.reading import scaled
from cce.data.prepare.vocabulary import split_file
from cce.data.prepare.writer import write_at
from cce.data.record_format import OFFSET, id_dtype, offsets_file, record_dtype, rows_file, values_file

if TYPE_CHECKING:
    from pathlib import Path

    from cce.data.prepare.columns import Columns
    from cce.schema import Schema


@dataclass(frozen=True)
class BlockTask:
    """One block: where its rows and its bags begin in each split, and where its values' ids are."""

    block: Path
    folder: Path
    schema: Schema
    columns: Columns
    row_starts: dict[str, int]
    value_starts: dict[tuple[str, int], int]
    ids: tuple[tuple[Path, int], ...]  # of each feature: the file of ids, and where this block's begin
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
    records["label"] = np.nan if task.columns.label is None else load_numbers(task.block, "label")
    if task.schema.has_weights:
        records["weight"] = load_numbers(task.block, "weight")
    scales = {name: scale for name, *scale in task.scales}
    for index, name in enumerate(task.schema.dense):
        column = load_numbers(task.block, f"dense {index}")
        records["dense"][:, index] = scaled(column, *scales[name]) if name in scales else column
    for index, name in enumerate(task.columns.categorical):
        words = load_words(task.block, f"word {name}")
        records[f"id{index}"] = _ids(task, index, len(words.values))[words.indices]
    return records


def _ids(task: BlockTask, index: int, num_values: int) -> np.ndarray:
    """The ids of this block's values, and 0 at the end, where the index -1 of a missing value looks."""
    path, start = task.ids[index]
    return np.append(np.load(path, mmap_mode="r")[start : start + num_values], 0)


def _write_bags(task: BlockTask, index: int, codes: np.ndarray) -> None:
    name = task.columns.features[index]
    words = load_bags(task.block, f"word {name}", len(task.columns.words) + index - len(task.columns.categorical))
    assert words.lengths is not None
    ids = _ids(task, index, len(words.values))[words.indices].astype(
        id_dtype(task.schema.features[index].num_embeddings)
    )
    code_of_ids = np.repeat(codes, words.lengths)
    for split, row_start in task.row_starts.items():
        code, start = SPLITS.index(split), task.value_starts[split, index]
        ends = start + words.lengths[codes == code].cumsum()
        write_at(task.folder / values_file(split, index), start, ids[code_of_ids == code])
        # the first offset of a file is its zero, so the end of row r is at r + 1
        write_at(task.folder / offsets_file(split, index), row_start + 1, ends.astype(OFFSET))
