"""Batches of prepared rows: shuffled, the same for the same seed, shared out over ranks, and resumable to the row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.checks import check_range
from cce.data.shuffle import EpochShuffle, Rows
from cce.data.split_rows import DECODED_ROWS, SplitRows
from cce.schema import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        drop_last: bool = False,
    ) -> None:
        check_range("batch_size", batch_size, 1, 2**31)
        check_range("seed", seed, 0, 2**63)
        check_range("world_size", world_size, 1, 2**31)
        check_range("rank", rank, 0, world_size)
        self.rows, self.batch_size, self.shuffle, self.seed = rows, batch_size, shuffle, seed
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last
        self.epoch = 0
        self.position = 0  # rows of the epoch that all ranks together have been given
        self._shuffle: EpochShuffle | None = None

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return math.ceil(self._num_rows / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self._num_rows:
            start = self.position
            lengths = self._next_lengths()
            rows = self._row_numbers(start, start + sum(lengths))
            shares = [rows] if self.world_size == 1 else self._shares(rows, lengths)
            batch = self.rows.fetch(np.concatenate(shares))
            pieces = cut_batch(batch, lengths if self.world_size == 1 else [len(share) for share in shares])
            for length, piece in zip(lengths, pieces, strict=True):
                start += length
                self.position = start
                yield piece
                if self.position != start:
                    break  # moved by load_state_dict or set_epoch
        self.epoch += 1
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; stay where we are if it is the current one."""
        check_range("epoch", epoch, 0, 2**63)
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch, and the options that it depends on."""
        return {"epoch": self.epoch, "position": self.position, **self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken, on any number of ranks."""
        for name, value in self._settings().items():
            if state[name] != value:
                raise ValueError(f"{name} must be that of the saved position, {state[name]!r}, got {value!r}.")
        check_range("position", state["position"], 0, self._num_rows + 1)
        self.epoch, self.position = state["epoch"], state["position"]

    def _settings(self) -> dict[str, Any]:
        return {"seed": self.seed, "shuffle": self.shuffle, "num_rows": len(self.rows)}

    @property
    def _num_rows(self) -> int:
        whole = len(self.rows) // self.batch_size * self.batch_size
        return whole if self.drop_last else len(self.rows)

    def _next_lengths(self) -> list[int]:
        """Rows of the next batches: enough batches that a fetch is worth its while."""
        count = max(1, DECODED_ROWS * self.world_size // self.batch_size)
        left = self._num_rows - self.position
        whole, rest = divmod(min(left, count * self.batch_size), self.batch_size)
        return [self.batch_size] * whole + ([rest] if rest else [])

    def _shares(self, rows: Rows, lengths: list[int]) -> list[Rows]:
        """This rank's rows of each batch."""
        batches = np.split(rows, np.cumsum(lengths)[:-1])
        rank, world_size = self.rank, self.world_size
        return [rows[len(rows) * rank // world_size : len(rows) * (rank + 1) // world_size] for rows in batches]

    def _row_numbers(self, start: int, stop: int) -> Rows:
        if not self.shuffle:
            return np.arange(start, stop)
        if self._shuffle is None or self._shuffle.epoch != self.epoch:
            self._shuffle = EpochShuffle(len(self.rows), seed=self.seed, epoch=self.epoch)
        return self._shuffle.rows(start, stop)


def cut_batch(batch: Batch, lengths: list[int]) -> list[Batch]:
    """One batch of many rows as several, one after the other."""
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
