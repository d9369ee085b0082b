"""The files of a data set: of known size, filled in any order, block by block, then sealed with a manifest and renamed.

A data set is made in a temporary folder, `OUT.part`, and takes its own name as the last step: what has that name is
whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cce.data.arrow.blocks import load_numbers, load_words
from cce.data.preparation.reading import scaled
from cce.data.preparation.vocabulary import split_file
from cce.data.record_format import (
    FORMAT,
    MANIFEST,
    OFFSET,
    SPLITS,
    checksum,
    id_dtype,
    offsets_file,
    record_dtype,
    rows_file,
    values_file,
)
from cce.files import named_full_disk, no_folder
from cce.version import __version__

if TYPE_CHECKING:
    from cce.data.preparation.job import Columns
    from cce.schema import Schema


def check_new(out: Path) -> None:
    """Reject a path that exists, or that lies below a file."""
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} must not exist already: remove it or choose another name.")
    above = no_folder(out.parent)
    if above is not None:
        raise NotADirectoryError(f"{out} must lie in a folder, got {above} above it.")


def temporary_folder(out: Path) -> Path:
    """The folder in which a data set is made."""
    return out.with_name(out.name + ".part")


def create_files(
    folder: Path, schema: Schema, num_rows: Mapping[str, int], num_values: Mapping[tuple[str, int], int] | None = None
) -> None:
    """Empty files of their final size for so many rows a split, and so many ids a split and multi-hot feature."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in num_rows.items():
        _create(folder / rows_file(split), count * record_dtype(schema).itemsize)
        for index, feature in enumerate(schema.features):
            if feature.multi_hot:
                size = (num_values or {})[split, index] * id_dtype(feature.num_embeddings).itemsize
                _create(folder / values_file(split, index), size)
                _create(folder / offsets_file(split, index), (count + 1) * OFFSET.itemsize)


def write_at(path: Path, start: int, values: np.ndarray) -> None:
    """Write values into a file from the `start`-th value on."""
    with named_full_disk(path), path.open("r+b") as file:
        file.seek(start * values.dtype.itemsize)
        file.write(values.tobytes())


def seal(folder: Path, out: Path, schema: Schema, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Checksum the files, write the manifest, and rename the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        _sync(path)
    manifest = {
        "format": FORMAT,
        "cce": __version__,
        "schema": schema.to_dict(),
        **contents,
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": checksum(path)}
            for path in files
        },
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    _sync(folder / MANIFEST)
    check_new(out)
    os.rename(folder, out)
    return manifest


def _create(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@dataclass(frozen=True)
class BlockTask:
    """One block: where its rows and its bags begin in each split, and where its values' ids are."""

    block: Path
    folder: Path
    schema: Schema
    columns: Columns
    row_starts: dict[str, int]
    value_starts: dict[tuple[str, int], int]
    ids: tuple[tuple[Path, int, int], ...]  # of each feature: the file of ids, where this block's begin, the missing id
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
        records[f"id{index}"] = _ids(task, index, len(words.values))[words.indices]
    return records


def _ids(task: BlockTask, index: int, num_values: int) -> np.ndarray:
    """The ids of this block's values, and that of missing ones at the end, where their index -1 looks."""
    path, start, missing = task.ids[index]
    return np.append(np.load(path, mmap_mode="r")[start : start + num_values], missing)


def _write_bags(task: BlockTask, index: int, codes: np.ndarray) -> None:
    name = task.columns.features[index]
    words = load_words(task.block, f"word {name}", index)
    assert words.lengths is not None
    dtype = id_dtype(task.schema.features[index].num_embeddings)
    ids = _ids(task, index, len(words.values))[words.indices].astype(dtype)
    code_of_ids = np.repeat(codes, words.lengths)
    for split, row_start in task.row_starts.items():
        code, start = SPLITS.index(split), task.value_starts[split, index]
        ends = start + words.lengths[codes == code].cumsum()
        write_at(task.folder / values_file(split, index), start, ids[code_of_ids == code])
        # the first offset of a file is its zero, so the end of row r is at r + 1
        write_at(task.folder / offsets_file(split, index), row_start + 1, ends.astype(OFFSET))
