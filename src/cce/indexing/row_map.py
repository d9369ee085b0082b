"""`RowMap`: which ids have a row of their own, and which row: a bit for each id, with ranks.

The ids that have rows, in rising order, have the rows 1, 2, 3, …; every other id has row 0. A bit for each id says
whether it has a row, and a 32-bit rank for each 64 ids how many rows come before: 1.5 bits per id, in any order of
the ids, where an array of rows would take 32. (Rank and select: Jacobson, "Space-efficient static trees and graphs",
1989.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cce.indexing.state import IndexModule

WORD = 64  # ids whose bits share a word
_ODD, _PAIRS, _NIBBLES = 0x5555_5555_5555_5555, 0x3333_3333_3333_3333, 0x0F0F_0F0F_0F0F_0F0F
_BYTES = 0x0101_0101_0101_0101
BLOCK = 1 << 14  # words at a time


class RowMap(IndexModule):
    """Rows of the ids in `[0, num_embeddings)`; at first no id has one."""

    shift = 0  # tells compiled loops that there are bits: see `OpenRowMap`
    index_state = ("bits",)
    device_tensors = ("bits", "ranks")

    def __init__(self, num_embeddings: int, *, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        num_words = -(-num_embeddings // WORD)
        self.bits = torch.zeros(num_words, dtype=torch.int64, device=device)
        self.ranks = torch.zeros(num_words, dtype=torch.int32, device=device)
        self.num_rows = 0

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """The bits and the ranks, as compiled loops read them."""
        return self.bits, self.ranks

    def stored(self) -> dict[str, Tensor]:
        """What a file of rows holds of the map (`docs/format.md`)."""
        return {"map.bits": self.bits, "map.ranks": self.ranks}

    @property
    def device(self) -> torch.device:
        """Of what the map is made of."""
        return self.parts[0].device

    def in_order(self, ids: Tensor) -> Tensor:
        """The order in which these ids would have rows."""
        return ids.argsort()

    def keep(self, is_kept: Tensor) -> None:
        """Take the rows of some ids away: `is_kept` says of each row, from 1 on, whether its id keeps one."""
        ids = torch.cat(list(self.ids()))[is_kept]
        self.reset_parameters()
        self.insert(ids)

    def forward(self, ids: Tensor) -> Tensor:
        """The row of each id, 0 where it has none, in plain torch."""
        word = torch.div(ids, WORD, rounding_mode="floor")
        bits, place = self.bits.index_select(0, word), ids - word * WORD
        before = bits & (torch.bitwise_left_shift(torch.ones_like(ids), place) - 1)  # ONNX has no `<<` by a tensor
        has_row = torch.bitwise_right_shift(bits, place) & 1 == 1
        return torch.where(has_row, self.ranks.index_select(0, word) + count_bits(before) + 1, 0)

    def insert(self, ids: Tensor) -> None:
        """Give rows to distinct ids; those of ids that have rows move up."""
        word = torch.div(ids, WORD, rounding_mode="floor")
        self.bits.index_add_(0, word, torch.ones_like(ids) << (ids - word * WORD))  # distinct: no bit is carried
        if len(ids):
            first, last = (int(bound) for bound in word.aminmax())
            self._count(first, last + 1)

    def rows_before(self, ids: Tensor) -> Tensor:
        """How many rows, row 0 included, come before those that ids without one would have."""
        ids = ids.to(self.bits.device)
        word = torch.div(ids, WORD, rounding_mode="floor")
        below = self.bits[word] & ((torch.ones_like(ids) << (ids - word * WORD)) - 1)
        return self.ranks[word] + count_bits(below) + 1

    def fill(self) -> None:
        """Give rows to all ids."""
        self.bits.fill_(-1)
        if self.num_embeddings % WORD:
            self.bits[-1] = (1 << self.num_embeddings % WORD) - 1
        self.count()

    def count(self) -> None:
        """Make the ranks again."""
        self._count(0, len(self.bits))

    def _count(self, first: int, last: int) -> None:
        """Make the ranks again, where only words in `[first, last)` have other bits than before."""
        if self.bits.is_meta:
            return
        if self.ranks.device != self.bits.device:
            self.ranks = torch.zeros_like(self.bits, dtype=torch.int32)
        total = int(self.ranks[first]) if first else 0
        for begin in range(first, last, BLOCK):
            counts = count_bits(self.bits[begin : min(begin + BLOCK, last)])
            self.ranks[begin : begin + len(counts)] = (counts.cumsum(0) - counts + total).int()
            total += int(counts.sum())
        before = int(self.ranks[last]) if last < len(self.ranks) else total
        self.ranks[last:] += total - before
        self.num_rows = total if last == len(self.ranks) else self.num_rows + total - before

    def ids(self) -> Iterator[Tensor]:
        """The ids that have rows, in order, some at a time."""
        shifts = torch.arange(WORD, device=self.bits.device)
        for first in range(0, len(self.bits), BLOCK):
            found = (self.bits[first : first + BLOCK].unsqueeze(1) >> shifts) & 1
            yield found.view(-1).nonzero().squeeze(1) + first * WORD

    def ids_of(self, places: Tensor) -> Tensor:
        """The ids in these places, which rise, of all ids with rows; without a list of all."""
        places, first = places.to(self.device), 0
        found = [places[:0]]
        for ids in self.ids():
            end = first + len(ids)
            low, high = torch.searchsorted(places, torch.tensor([first, end], device=places.device)).tolist()
            found.append(ids[places[low:high] - first])
            first = end
        return torch.cat(found)

    @property
    def nbytes(self) -> int:
        """Bytes of bits and ranks."""
        return self.bits.nbytes + self.ranks.nbytes

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Give no id a row."""
        super().reset_parameters(generator)
        self.count()

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.count()


def count_bits(words: Tensor) -> Tensor:
    """How many bits of each int64 are set, in plain torch: pairs, nibbles and bytes are added side by side."""
    words = words - ((words >> 1) & _ODD)
    words = (words & _PAIRS) + ((words >> 2) & _PAIRS)
    words = (words + (words >> 4)) & _NIBBLES
    return ((words * _BYTES) >> 56) & 0xFF
