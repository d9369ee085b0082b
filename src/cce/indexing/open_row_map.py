"""`OpenRowMap`: which 64-bit ids have a row of their own, and which row, where no vocabulary bounds the ids.

The keys of ids that have rows, in rising order, have the rows 1, 2, 3, …; every other id has row 0. A key is the id,
scrambled one to one, so that keys are spread evenly whatever the ids are, and the ids can be had back. A directory says
where the keys begin that share their top bits, four to eight of them; how far a key is among them follows from its next
bits, within one or two. So a lookup reads one line of the directory and mostly one of the keys. 8 bytes an id, and at
most one of the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cce.indexing.multiply_shift import scramble, unscramble
from cce.indexing.row_map import RowMap
from cce.indexing.state import IndexModule

KEYS_AT_A_TIME = 1 << 20
LOWEST = -(2**63)


class OpenRowMap(RowMap):
    """Rows of any 64-bit ids; at first no id has one."""

    index_state = ("keys",)
    device_tensors = ("keys", "starts")

    def __init__(self, *, device: torch.device | str | None = None) -> None:
        IndexModule.__init__(self)
        self.keys = torch.empty(0, dtype=torch.int64, device=device)
        self.starts = torch.zeros(3, dtype=torch.int32, device=device)
        self.num_rows = 0

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """The keys and the directory, as compiled loops read them."""
        return self.keys, self.starts

    def stored(self) -> dict[str, Tensor]:
        """What a file of rows holds of the map (`docs/format.md`)."""
        return {"map.keys": self.keys}

    @property
    def shift(self) -> int:  # type: ignore[override]  # it grows with the ids
        """Bits of a key below those that the directory goes by."""
        return 64 - (len(self.starts) - 1).bit_length() + 1

    def forward(self, ids: Tensor) -> Tensor:
        """The row of each id, 0 where it has none, in plain torch."""
        if not len(self.keys):
            return torch.zeros_like(ids)
        keys = scramble(ids)
        at = self._place(keys)
        found = self.keys.index_select(0, at.reshape(-1).clamp(max=len(self.keys) - 1)).view(ids.shape)
        return torch.where(found == keys, at + 1, 0)

    def _place(self, keys: Tensor) -> Tensor:
        """How many of the keys lie below each of these."""
        if not torch.compiler.is_exporting():
            return torch.searchsorted(self.keys, keys)
        at = torch.zeros_like(keys)  # a fixed number of steps, of what every format has
        for bit in reversed(range(len(self.keys).bit_length())):
            following = at + (1 << bit)
            index = following.clamp(max=len(self.keys)) - 1
            below = self.keys.index_select(0, index.reshape(-1)).view(keys.shape) < keys
            at = torch.where(below & (following <= len(self.keys)), following, at)
        return at

    def in_order(self, ids: Tensor) -> Tensor:
        """The order in which these ids would have rows."""
        return scramble(ids).argsort()

    def insert(self, ids: Tensor) -> None:
        """Give rows to distinct ids; those of ids that have rows move up."""
        new = scramble(ids).sort().values
        at = torch.searchsorted(self.keys, new) + torch.arange(len(new), device=new.device)
        is_old = torch.ones(len(self.keys) + len(new), dtype=torch.bool, device=new.device)
        is_old[at] = False
        keys = new.new_empty(len(is_old))
        keys[at] = new
        keys[is_old] = self.keys
        self.keys = keys
        self.count()

    def keep(self, is_kept: Tensor) -> None:
        """Take the rows of some ids away: `is_kept` says of each row, from 1 on, whether its id keeps one."""
        self.keys = self.keys[is_kept]
        self.count()

    def rows_before(self, ids: Tensor) -> Tensor:
        """How many rows, row 0 included, come before those that ids without one would have."""
        return torch.searchsorted(self.keys, scramble(ids.to(self.keys.device))) + 1

    def fill(self) -> None:
        """Not supported: nobody knows all ids."""
        raise ValueError("num_embeddings must be given to have rows for all ids, got None.")

    def count(self) -> None:
        """Make the directory again."""
        self.num_rows = len(self.keys)
        if self.keys.is_meta:
            return
        bits = max(1, self.num_rows.bit_length() - 3)
        self.starts = torch.empty((1 << bits) + 1, dtype=torch.int32, device=self.keys.device)
        for first in range(0, 1 << bits, KEYS_AT_A_TIME):
            tops = torch.arange(first, min(first + KEYS_AT_A_TIME, 1 << bits), device=self.keys.device)
            bounds = (tops << (64 - bits)) + LOWEST
            self.starts[first : first + len(tops)] = torch.searchsorted(self.keys, bounds).int()
        self.starts[-1] = self.num_rows

    def ids(self) -> Iterator[Tensor]:
        """The ids that have rows, in the order of rows, some at a time."""
        for keys in torch.split(self.keys, KEYS_AT_A_TIME):
            yield unscramble(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and directory."""
        return self.keys.nbytes + self.starts.nbytes

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Give no id a row."""
        del generator
        self.keys = self.keys[:0].clone()
        self.count()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        found = state_dict.get(prefix + "keys")
        if found is not None and found.dtype is torch.int64 and found.dim() == 1:
            if not found.is_meta and bool((found.diff() <= 0).any()):
                args[-1].append(f"keys mismatch for {prefix}keys: they must rise.")
                return
            self.keys = self.keys.new_empty(found.shape)  # as many as were saved
        super()._load_from_state_dict(state_dict, prefix, *args)
