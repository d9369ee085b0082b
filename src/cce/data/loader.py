"""Batches of prepared rows: shuffled, the same for the same seed, shared out over ranks, and resumable to the row.

Rows are shuffled in windows, so that a file far larger than memory is read in long stretches: they are cut into blocks
of 8,192 that follow one another, blocks are drawn in random order, and rows are shuffled in windows of 2,097,152,
among themselves. Only raw random bits are used, which numpy keeps the same from version to version.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cce.checks import check_range
from cce.data.record_format import OFFSET, id_dtype, map_file, offsets_file, record_dtype, rows_file, values_file
from cce.schema import Batch, Schema

Rows = NDArray[np.int64]

BLOCK_ROWS = 1 << 13
WINDOW_ROWS = 1 << 21


class EpochShuffle:
    """The rows of one epoch: `rows(start, stop)` are those at the positions from `start` to `stop`."""

    def __init__(
        self, num_rows: int, *, seed: int, epoch: int, block_rows: int = BLOCK_ROWS, window_rows: int = WINDOW_ROWS
    ) -> None:
        self.num_rows, self.block_rows, self.window_rows = num_rows, block_rows, window_rows
        self.epoch = epoch
        self._seeds = (seed, epoch)
        self._blocks = shuffled(-(-num_rows // block_rows), (*self._seeds, 0))
        lengths = np.minimum(num_rows - self._blocks * block_rows, block_rows)
        self._ends = lengths.cumsum()
        self._window = -1
        self._rows = np.empty(0, np.int64)

    def rows(self, start: int, stop: int) -> Rows:
        pieces = []
        for window in range(start // self.window_rows, -(-stop // self.window_rows)):
            first = window * self.window_rows
            pieces.append(self._load(window)[max(start - first, 0) : stop - first])
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.int64), *pieces])

    def _load(self, window: int) -> Rows:
        if window != self._window:
            ordered = self._unshuffled(window * self.window_rows)
            self._rows = ordered[shuffled(len(ordered), (*self._seeds, 1 + window))]
            self._window = window
        return self._rows

    def _unshuffled(self, start: int) -> Rows:
        """Rows of one window, block after block; a short last block may lie anywhere, so ends are looked up."""
        stop = min(start + self.window_rows, self.num_rows)
        first, last = (int(block) for block in np.searchsorted(self._ends, (start, stop - 1), side="right"))
        begins = (self._blocks[first : last + 1] * self.block_rows).tolist()
        rows = np.concatenate([np.arange(b, min(b + self.block_rows, self.num_rows)) for b in begins])
        before = start - (int(self._ends[first - 1]) if first else 0)  # rows of the first block that came before
        return rows[before : before + stop - start]


def shuffled(count: int, seeds: tuple[int, ...]) -> Rows:
    """The integers below `count` in random order: 64 random bits each, the lowest replaced by the integer, sorted."""
    keys = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    low = np.uint64((1 << max(count - 1, 0).bit_length()) - 1)
    keys &= ~low
    keys |= np.arange(count, dtype=np.uint64)
    keys.sort()
    return (keys & low).view(np.int64)


DECODED_ROWS = 2048  # at once: all columns of this many rows stay in the cache of one core


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
        offsets = None
        if self._bags:  # a one-hot feature has a bag of one id for each row
            ones = np.ones(len(rows), np.int64)
            bags = [self._bags[c].fetch(rows) if c in self._bags else (ids[:, c], ones) for c in range(num_columns)]
            ids, starts = join_bags(bags)
            offsets = torch.from_numpy(starts)
        given = {"offsets": offsets, "weights": weights if self.schema.has_weights else None}
        return Batch(dense=dense, ids=torch.from_numpy(ids), labels=labels, **given)

    def _decode(self, rows: np.ndarray, columns: dict[str, np.ndarray], ids: np.ndarray) -> None:
        # whole records are copied as bytes, which is several times faster than to index records
        records = self._bytes.take(rows, axis=0).reshape(-1).view(self._dtype)
        for name, index in self._id_columns:
            ids[:, index] = records[name]
        for name in self._others:
            columns[name][...] = records[name]


def join_bags(columns: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Flat ids and offsets as a batch has them, of the ids of each feature and how many each row has."""
    lengths = np.concatenate([lengths for _, lengths in columns])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=offsets[1:])
    return np.concatenate([values for values, _ in columns]).astype(np.int64, copy=False), offsets


class Bags:
    """The ids of one multi-hot feature: row `r` has `values[offsets[r] : offsets[r + 1]]`."""

    def __init__(self, folder: Path, split: str, index: int, num_embeddings: int | None) -> None:
        self.values = map_file(folder / values_file(split, index), id_dtype(num_embeddings))
        self.offsets = map_file(folder / offsets_file(split, index), OFFSET)

    def fetch(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        before = np.cumsum(lengths) - lengths
        positions = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        return self.values[positions].astype(np.int64), lengths


class Loader:
    """The batches of a split, epoch after epoch.

    Iterating gives the rest of the current epoch; at its end the next epoch begins, with another order. `batch_size`
    is that of all ranks together: each rank takes its share of every batch, so batch `i` has the same rows on any
    number of ranks. A share may be empty in the last batch of an epoch.
    """

    def __init__(
        self,
        rows: SplitRows,
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_range("batch_size", batch_size, 1, 2**31)
        check_range("seed", seed, 0, 2**63)
        check_range("world_size", world_size, 1, 2**31)
        check_range("rank", rank, 0, world_size)
        self.rows, self.batch_size, self.shuffle, self.seed = rows, batch_size, shuffle, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.position = 0  # rows of the epoch that all ranks together have been given
        self._shuffle: EpochShuffle | None = None

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def rows_given(self) -> int:
        """Rows of all epochs so far, of all ranks together."""
        return self.epoch * self.num_rows + self.position

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return math.ceil(len(self.rows) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        while self.position < len(self.rows):
            start = self.position
            lengths = self._next_lengths()
            rows = self._row_indices(start, start + sum(lengths))
            shares = [rows] if self.world_size == 1 else self._shares(rows, lengths)
            batch = self.rows.fetch(np.concatenate(shares))
            pieces = cut_batch(batch, lengths if self.world_size == 1 else [len(share) for share in shares])
            for length, piece in zip(lengths, pieces, strict=True):
                start += length
                self.position = start
                yield piece
                if self.position != start:
                    break  # moved by load_state_dict
        self.epoch += 1
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch, and the options that it depends on."""
        return {"epoch": self.epoch, "position": self.position, **self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken, on any number of ranks."""
        for name, value in self._settings().items():
            if state[name] != value:
                raise ValueError(f"{name} must be that of the saved position, {state[name]!r}, got {value!r}.")
        check_range("position", state["position"], 0, len(self.rows) + 1)
        self.epoch, self.position = state["epoch"], state["position"]

    def _settings(self) -> dict[str, Any]:
        return {"seed": self.seed, "shuffle": self.shuffle, "num_rows": len(self.rows)}

    def _next_lengths(self) -> list[int]:
        """Rows of the next batches: enough batches that a fetch is worth its while."""
        count = max(1, DECODED_ROWS * self.world_size // self.batch_size)
        left = len(self.rows) - self.position
        whole, rest = divmod(min(left, count * self.batch_size), self.batch_size)
        return [self.batch_size] * whole + ([rest] if rest else [])

    def _shares(self, rows: Rows, lengths: list[int]) -> list[Rows]:
        """This rank's rows of each batch."""
        batches = np.split(rows, np.cumsum(lengths)[:-1])
        rank, world_size = self.rank, self.world_size
        return [rows[len(rows) * rank // world_size : len(rows) * (rank + 1) // world_size] for rows in batches]

    def _row_indices(self, start: int, stop: int) -> Rows:
        if not self.shuffle:
            return np.arange(start, stop)
        if self._shuffle is None or self._shuffle.epoch != self.epoch:
            self._shuffle = EpochShuffle(len(self.rows), seed=self.seed, epoch=self.epoch)
        return self._shuffle.rows(start, stop)


def cut_batch(batch: Batch, lengths: list[int]) -> list[Batch]:
    if len(lengths) == 1:
        return [batch]
    weights = torch.split(batch.weights, lengths) if batch.weights is not None else [None] * len(lengths)
    columns = (torch.split(batch.dense, lengths), torch.split(batch.labels, lengths), _cut_ids(batch, lengths), weights)
    return [
        Batch(dense=dense, ids=ids, labels=labels, offsets=offsets, weights=weight)
        for dense, labels, (ids, offsets), weight in zip(*columns, strict=True)
    ]


def _cut_ids(batch: Batch, lengths: list[int]) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    if batch.offsets is None:
        return [(ids, None) for ids in torch.split(batch.ids, lengths)]
    num_features = (len(batch.offsets) - 1) // max(len(batch), 1)
    begins = np.cumsum([0, *lengths[:-1]]).tolist()
    return [_some_bags(batch, begin, length, num_features) for begin, length in zip(begins, lengths, strict=True)]


def _some_bags(batch: Batch, begin: int, length: int, num_features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bags of rows from `begin` on: a stretch of each feature's."""
    assert batch.offsets is not None
    ids, sizes = [], []
    for feature in range(num_features):
        bounds = batch.offsets[feature * len(batch) + begin :][: length + 1]
        ids.append(batch.ids[int(bounds[0]) : int(bounds[-1])])
        sizes.append(bounds.diff())
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(sizes).cumsum(0)])
    return torch.cat(ids), offsets
