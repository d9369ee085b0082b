"""The rows of one split on disk: any of them, by index, as a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from cce.data.record_format import OFFSET, id_dtype, map_file, offsets_file, record_dtype, rows_file, values_file
from cce.schema import Batch, Schema

if TYPE_CHECKING:
    from pathlib import Path

DECODED_ROWS = 2048  # at once: all columns of so many rows stay in the cache of one core


class SplitRows:
    """The rows of one split, memory-mapped: rows are read on access."""

    def __init__(self, folder: Path, split: str, schema: Schema) -> None:
        self.schema, self._num_columns = schema, len(schema.features)
        self._dtype = record_dtype(schema)
        records = map_file(folder / rows_file(split), self._dtype)
        self._bytes = records.view(np.uint8).reshape(len(records), self._dtype.itemsize)
        names = self._dtype.names or ()
        self._id_columns = [(name, int(name[2:])) for name in names if name.startswith("id")]
        self._others = [name for name in names if not name.startswith("id")]
        self._bags = {
            index: Bags(folder, split, index, feature.num_embeddings)
            for index, feature in enumerate(schema.features)
            if feature.multi_hot
        }

    def __len__(self) -> int:
        return len(self._bytes)

    def fetch(self, rows: np.ndarray) -> Batch:
        """The rows with these indices, in this order."""
        num_dense, num_columns = len(self.schema.dense), self._num_columns
        columns = {
            "label": np.empty(len(rows), np.float32),
            "weight": np.empty(len(rows) if self.schema.has_weights else 0, np.float32),
            "dense": np.empty((len(rows), num_dense), np.float32),
        }
        ids = np.empty((len(rows), num_columns), np.int64)  # a multi-hot feature's column is not used
        for start in range(0, len(rows), DECODED_ROWS):
            chunk = slice(start, start + DECODED_ROWS)
            self._decode(rows[chunk], {name: column[chunk] for name, column in columns.items()}, ids[chunk])
        labels, weights, dense = (torch.from_numpy(column) for column in columns.values())
        flat, offsets = self._with_bags(rows, ids) if self._bags else (ids, None)
        return Batch(
            dense=dense,
            ids=torch.from_numpy(flat),
            labels=labels,
            offsets=None if offsets is None else torch.from_numpy(offsets),
            weights=weights if self.schema.has_weights else None,
        )

    def _decode(self, rows: np.ndarray, columns: dict[str, np.ndarray], ids: np.ndarray) -> None:
        # whole records are copied as bytes, which is several times faster than to index records
        records = self._bytes.take(rows, axis=0).reshape(-1).view(self._dtype)
        for name, index in self._id_columns:
            ids[:, index] = records[name]
        for name in self._others:
            columns[name][...] = records[name]

    def _with_bags(self, rows: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids and offsets: a one-hot feature has a bag of one id for each row."""
        ones = np.ones(len(rows), np.int64)
        columns = range(self._num_columns)
        return join_bags([self._bags[c].fetch(rows) if c in self._bags else (ids[:, c], ones) for c in columns])


def join_bags(columns: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Flat ids and offsets as a batch has them, of the ids of each feature and how many each row has."""
    lengths = np.concatenate([lengths for _, lengths in columns])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=offsets[1:])
    return np.concatenate([values for values, _ in columns]).astype(np.int64, copy=False), offsets


class Bags:
    """The ids of one multi-hot feature: row `r` has `values[offsets[r] : offsets[r + 1]]`."""

    def __init__(self, folder: Path, split: str, index: int, num_embeddings: int) -> None:
        self.values = map_file(folder / values_file(split, index), id_dtype(num_embeddings))
        self.offsets = map_file(folder / offsets_file(split, index), OFFSET)

    def fetch(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of these rows one after the other, and how many each row has."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        before = np.cumsum(lengths) - lengths
        positions = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        return self.values[positions].astype(np.int64), lengths
