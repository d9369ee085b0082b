"""A data set baked: the same rows in the same order, with words of pointers in place of the ids of some features."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from cce.data.manifest import MANIFEST, checksum
from cce.data.prepare.writer import check_new, create_files, seal, temporary_folder, write_at
from cce.data.record_format import OFFSET, id_dtype, map_file, offsets_file, record_dtype, rows_file, values_file
from cce.files import clear_folder, lock_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cce.data.prepared import PreparedData
    from cce.schema import Schema

    FindWords = Callable[[int, np.ndarray], np.ndarray]

BLOCK_ROWS = 1 << 16
COPIED = ("label", "weight", "dense")


def prepare_baked(
    data: PreparedData, out: Path, schema: Schema, find_words: FindWords, *, run: Mapping[str, Any], progress: bool
) -> dict[str, Any]:
    """Write the rows of `data` by the baked `schema`, and return the manifest.

    find_words: what ids `(n)` of the feature of an index become, `(n, its columns)`. run: what the manifest says of it.
    """
    check_new(out)
    with lock_folder(temporary_folder(out), temporary=True):
        try:
            clear_folder(temporary_folder(out))
            baking = _Baking(data, temporary_folder(out) / "data", schema, find_words, progress=progress)
            contents = {
                "kind": "baked",
                "options": {} if data.has_labels else {"columns": {"label": None}},
                "run": dict(run),
                "data": checksum(data.path / MANIFEST),
                "splits": baking.write(),
            }
            return seal(baking.folder, out, schema, contents)
        finally:
            clear_folder(temporary_folder(out))


class _Baking:
    """A data set on its way from one folder to another."""

    def __init__(
        self, data: PreparedData, folder: Path, schema: Schema, find_words: FindWords, *, progress: bool
    ) -> None:
        self.data, self.folder, self.schema, self.find_words = data, folder, schema, find_words
        self.progress = progress
        ends = accumulate((len(feature.id_columns) for feature in schema.features), initial=0)
        self.columns = [range(*bounds) for bounds in pairwise(ends)]  # of each feature

    def write(self) -> dict[str, int]:
        """Write all splits; return how many rows each has."""
        splits = {split: self.data.num_rows(split) for split in self.data.splits}
        bags = {(split, index): self._ids(split, index) for split in splits for index in self._multi_hot}
        sizes = {(split, column): len(ids) for (split, index), ids in bags.items() for column in self.columns[index]}
        create_files(self.folder, self.schema, splits, sizes)
        for split in splits:
            self._write_rows(split)
        for (split, index), ids in bags.items():
            self._write_bags(split, index, ids)
        return splits

    @property
    def _multi_hot(self) -> list[int]:
        return [index for index, feature in enumerate(self.schema.features) if feature.multi_hot]

    def _write_rows(self, split: str) -> None:
        old, dtype = (
            map_file(self.data.path / rows_file(split), record_dtype(self.data.schema)),
            record_dtype(self.schema),
        )
        one_hot = [index for index in range(len(self.columns)) if index not in self._multi_hot]
        for start, rows in self._blocks(split, old):
            new = np.zeros(len(rows), dtype)
            for name in set(COPIED) & set(dtype.names or ()):
                new[name] = rows[name]
            for index in one_hot:
                for column, words in zip(
                    self.columns[index], self.find_words(index, rows[f"id{index}"]).T, strict=True
                ):
                    new[f"id{column}"] = words
            write_at(self.folder / rows_file(split), start, new)

    def _write_bags(self, split: str, index: int, ids: np.ndarray) -> None:
        offsets = map_file(self.data.path / offsets_file(split, index), OFFSET)
        for column in self.columns[index]:
            write_at(self.folder / offsets_file(split, column), 0, offsets)
        for start, some in self._blocks(split, ids):
            for column, words in zip(self.columns[index], self.find_words(index, some).T, strict=True):
                dtype = id_dtype(self.schema.id_columns[column].num_embeddings)
                write_at(self.folder / values_file(split, column), start, words.astype(dtype))

    def _ids(self, split: str, index: int) -> np.ndarray:
        return map_file(
            self.data.path / values_file(split, index), id_dtype(self.schema.features[index].num_embeddings)
        )

    def _blocks(self, name: str, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        starts = range(0, len(values), BLOCK_ROWS)
        for start in tqdm(starts, name, unit="block", leave=False, disable=None if self.progress else True):
            yield start, values[start : start + BLOCK_ROWS]
