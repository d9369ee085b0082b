"""What changes in a table of int8 rows at every step, with the record of it that compiled loops read and write, and
ids that got rows since the row map was made: a small hash table beside it, on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

import numpy as np
import torch
from torch import Tensor

from cce import compiled
from cce.kernels import int8 as loops

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows
    from cce.embeddings.row_gradients import Pending

Array = np.ndarray[Any, Any]

HANDLES = count(1)
BY_HANDLE: WeakValueDictionary[int, Int8Rows] = WeakValueDictionary()  # a graph of torch.compile names rows by a number


@dataclass(slots=True)
class Live:
    """An object of its own, since a module is slow to set its attributes."""

    record: Array = field(default_factory=lambda: np.zeros(1, loops.TABLE))
    pending: Pending | None = None
    is_settled: bool = True  # whether the anchor's gradient has the norm of what is pending
    has_optimizer: bool = False
    is_old: bool = True  # whether the record must be made again, since something has moved in memory
    was_sent: bool = False  # to another process, perhaps: torch then moves tensors into shared memory
    moves: int = 0  # how often something has, or ids were given rows
    was_full: bool = False  # whether it was said that there is no space for new ids
    is_agreed: bool = False  # whether all ranks were found to have the same sharded table
    is_final: bool = False  # whether the table has its compact form, without rows
    address: int = 0  # of the record
    handle: int = 0  # in BY_HANDLE
    anchor: ref[Tensor] | None = None  # which holds these rows

    def __post_init__(self) -> None:
        self.address = int(self.record.ctypes.data)

    def copy(self) -> Live:
        """That of a copy of the table, which has no optimizer yet."""
        return Live(self.record.copy(), is_final=self.is_final)

    def settle(self, anchor: Tensor) -> None:
        """Let the anchor's gradient be the norm of what is pending, exactly: a hook after backward."""
        if not self.is_settled and self.pending is not None and anchor.grad is not None:
            anchor.grad.fill_(self.pending.norm)
            self.is_settled = True

    def has_used(self, anchor: Tensor) -> bool:
        """Whether what is pending was zeroed, which the anchor's gradient tells; a GPU is not waited for."""
        if not self.is_settled:
            return False  # a backward pass is under way
        gradient, pending = anchor.grad, self.pending
        if gradient is None or pending is None:
            return True
        return gradient.is_cpu and float(gradient) == 0 and pending.norm != 0


def register(rows: Int8Rows) -> None:
    """Give rows a handle, which no others of this process ever get."""
    rows.live.handle = next(HANDLES)
    BY_HANDLE[rows.live.handle] = rows


def describe(rows: Int8Rows) -> None:
    """Let the record of a table say where everything lies now."""
    live, record = rows.live, rows.live.record
    if rows.map.num_rows >= record["num_rows"][0]:  # loops would read what lies behind the rows
        found = f"{rows.map.num_rows} in the map and {rows.num_rows - 1} rows"
        why = "after finalize there are none, and a state_dict must be whole"
        raise ValueError(f"int8 rows of {rows.name} must be as many as ids have, got {found}: {why}.")
    bits, ranks = rows.map.parts
    tensors = {"bits": bits, "ranks": ranks, "records": rows.records, "seen": rows.seen}
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    if not live.is_old:  # torch may have moved what was sent to another process
        if all(record[name][0] == address for name, address in addresses.items()):
            return
        live.moves += 1
    numbers = addresses | {
        "last_id": (rows.num_embeddings or 0) - 1,
        "dim": rows.dim,
        "width": rows.width,
        "shift": rows.map.shift,
        "key": rows.key,
        "num_mapped": rows.map.num_rows,
        "recent_ids": rows.recent.ids.data_ptr(),
        "recent_rows": rows.recent.rows.data_ptr(),
        "recent_size": len(rows.recent),
        "capacity": len(rows.records),
        "most_rows": rows.most_rows,
        "seen_size": len(rows.seen),
        "seen_bits": rows.seen_bits,
        "sketch_width": rows.sketch_width,
        "needed": rows.needed,
        "chance": 1.0 if rows.policy.probability is None else rows.policy.probability,
        "stamps": rows.policy.has_stamps,
        "evicts_above": rows.evicts_above,
        "ages_at": rows.ages_at,
        "expires_every": rows.expires_every,
        "shares": rows.trains_unseen,
        "bound": rows.bound,
    }
    for name, number in numbers.items():
        record[name] = number
    live.is_old = False


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
        """The same with memory for this many ids, of which three quarters of the slots are used at most."""
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
