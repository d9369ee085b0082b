"""The rows of an epoch, shuffled in windows, so that a file far larger than memory is read in long stretches.

The rule: rows are cut into blocks of 8,192 that follow one another, blocks are drawn in random order, and the rows of
each window of 2,097,152 (256 blocks) are shuffled among themselves. A split that fits into one window is shuffled as a
whole. Only raw random bits are used, which numpy keeps the same from version to version.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

BLOCK_ROWS = 1 << 13
WINDOW_ROWS = 1 << 21


class EpochShuffle:
    """The rows of one epoch: `rows(start, stop)` are those at the positions from `start` to `stop`."""

    def __init__(
        self,
        num_rows: int,
        *,
        seed: int,
        epoch: int,
        block_rows: int = BLOCK_ROWS,
        window_rows: int = WINDOW_ROWS,
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
        """Row indices at the positions from `start` to `stop` of the epoch."""
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
