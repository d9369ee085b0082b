"""Ids that got rows since the row map was made: a small hash table beside it, on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from cce import compiled
from cce.kernels import int8 as loops


class RecentRows:
    """Ids and their rows, which follow one another; row 0 marks an empty slot. The size is 0 or a power of two."""

    def __init__(self, size: int = 0) -> None:
        self.ids = torch.zeros(size, dtype=torch.int64, device="cpu")
        self.rows = torch.zeros(size, dtype=torch.int32, device="cpu")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of ids and rows."""
        return self.ids.nbytes + self.rows.nbytes

    def used(self) -> tuple[Tensor, Tensor]:
        """The ids and their rows, in any order."""
        used = self.rows != 0
        return self.ids[used], self.rows[used]

    def grown(self, num_ids: int) -> RecentRows:
        """The same with memory for so many ids, of which three quarters of the slots are used at most."""
        larger = RecentRows(2 ** (4 * num_ids // 3).bit_length())
        ids, rows = self.used()
        if len(ids):
            larger.insert(ids[rows.argsort()], int(rows.min()))
        return larger

    def insert(self, ids: Tensor, first_row: int) -> None:
        """Note the rows of new ids, one after the other from `first_row` on."""
        loops.insert_recent(self.ids.numpy(), self.rows.numpy(), ids.numpy(), first_row)


def merge_rows(values: Tensor, rows: Tensor, before: Tensor, *, in_loops: bool) -> None:
    """Move `rows` of `values`, its last ones, to where `before` rows of the others come before them."""
    moved = values[rows]
    if in_loops:
        arrays = values.numpy(), moved.numpy(), before.numpy()
        if compiled.is_compiled(loops.merge, arrays):
            loops.merge(*arrays)
            return
    others = values[: len(values) - len(rows)].clone()
    at = before + torch.arange(len(rows), device=before.device)
    is_other = torch.ones(len(values), dtype=torch.bool, device=values.device)
    is_other[at] = False
    values[is_other], values[at] = others, moved
