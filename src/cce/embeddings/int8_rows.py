"""`Int8Rows`: rows of int8 values that ids earn, and three bytes of each that their optimizer keeps.

An id gets a row when it has occurred `min_count` times in training; until then, and if it never occurs, it reads row 0,
which is neutral: zero, and frozen. Rows exist for ids that have earned one, whatever the numbering of ids. The ids with
rows are in a `RowMap`, their rows in the order of ids; ids that got rows since are in a small hash table, with rows at
the end, until `compact` puts everything in order. Where a row lies is nowhere to be seen: random numbers and sums
depend on ids alone.

Low-precision training of embedding tables: Zhang et al., "Training with low-precision embedding tables" (2018); Li et
al., "Adaptive low-precision training for embeddings in click-through rate prediction" (AAAI 2023).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from cce import compiled
from cce.checks import check_range
from cce.indexing import IndexModule, RowMap, blocks, count_bits, make_key, uniform
from cce.kernels import is_eager
from cce.kernels import training_rows as loops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, Any]

HEADROOM = 8  # the largest value of int8 stands for so many times the root mean square of the values
MOST_COUNTED = 256  # occurrences before a row
FEWEST_RECENT = 64  # ids with rows that are not in the map
RECENT_SHARE = 16  # of all rows, that may be the last that are not
BLOCK = 1 << 16  # rows at a time
NO_LINE = np.empty(0, np.int64)
STATE_NBYTES = 3  # of a row, besides its values


@dataclass(slots=True)
class Pending:
    """Gradients that wait for a step: those of distinct ids, in the order in which they first occurred.

    They are part `index` of the arrays of several tables, and there the first `count`.
    """

    integers: Tensor  # (3, tables, batch) int64: ids, rows at `version`, occurrences
    all_sums: Tensor  # (tables, batch, dim)
    version: int
    norm: Tensor  # of the sums of ids that will be moved, as the table's anchor has it
    is_finite: bool
    count: int
    index: int = 0

    @property
    def ids(self) -> Tensor:
        """Distinct ids `(n)`."""
        return self.integers[0, self.index, : self.count]

    @property
    def rows(self) -> Tensor:
        """Their rows `(n)`, 0 where they have none."""
        return self.integers[1, self.index, : self.count]

    @property
    def occurrences(self) -> Tensor:
        """How often they occurred `(n)`."""
        return self.integers[2, self.index, : self.count]

    @property
    def sums(self) -> Tensor:
        """Their gradients `(n, dim)`."""
        return self.all_sums[self.index, : self.count]

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return self.count * (3 * 8 + 4 * self.all_sums.shape[2])

    def addresses(self) -> list[int]:
        """Where ids, rows, occurrences and sums begin; both arrays are contiguous."""
        _, num_tables, batch = self.integers.shape
        first = self.integers.data_ptr() + 8 * self.index * batch
        step = 8 * num_tables * batch
        sums = self.all_sums.data_ptr() + 4 * self.index * batch * self.all_sums.shape[2]
        return [first, first + step, first + 2 * step, sums]


@dataclass(slots=True)
class Live:
    """What changes at every step: an object of its own, since a module is slow to set its attributes."""

    scale: float
    num_rows: int = 1
    steps: int = 0
    value_squares: float = 0.0  # of rows that were moved since the scale was last fitted
    value_count: float = 0.0
    pending: Pending | None = None
    is_settled: bool = True  # whether the anchor's gradient has the norm of what is pending


class Int8Rows(IndexModule):
    """Rows of `dim` int8 values times one scale, for the ids in `[0, num_embeddings)` that have earned them.

    min_count: occurrences in training after which an id has a row; 1: from the first on.
    bound: new rows start in U(−bound, bound).
    trains_unseen: whether row 0 is trained by the ids that read it, instead of staying zero.
    """

    records: Tensor  # (capacity, dim + 3) int8: values, and three bytes of state
    index_state = ("records", "seen", "numbers")
    device_tensors = ("records", "seen")

    def __init__(
        self,
        num_embeddings: int,
        dim: int,
        *,
        min_count: int = 2,
        bound: float = 0.0,
        trains_unseen: bool = False,
        key: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_range("min_count", min_count, 1, MOST_COUNTED + 1)
        self.num_embeddings, self.dim, self.min_count, self.bound = num_embeddings, dim, min_count, bound
        self.trains_unseen = trains_unseen
        self.is_open = True  # whether ids still get rows
        self.key, self.live = key, Live(self.start_scale)
        self.name = f"a table of {num_embeddings:,} ids"
        self.map = RowMap(num_embeddings, device=device)
        self.seen = torch.zeros(self._open_nbytes, dtype=torch.uint8, device=device)
        self.has_optimizer = False
        self.moves, self._line = 0, NO_LINE  # how often something has moved in memory
        self.was_sent = False  # to another process, perhaps: torch then moves tensors into shared memory
        self.records = self._new_records(1, device)
        self._forget_recent()

    # -- parts of rows, and what changes at every step -----------------------------------------------------------------

    @property
    def codes(self) -> Tensor:
        """The values `(capacity, dim)`, int8."""
        return self.records.narrow(1, 0, self.dim)

    @property
    def levels(self) -> Tensor:
        """The second moment of each row `(capacity)`, uint8; 0 where there was no gradient yet."""
        return self.records.view(torch.uint8)[:, self.dim]

    @property
    def uses(self) -> Tensor:
        """Steps of each row `(capacity)`, modulo 256."""
        return self.records.view(torch.uint8)[:, self.dim + 1]

    @property
    def counts(self) -> Tensor:
        """About how often the id of each row occurred `(capacity)`, in a byte: see `occurrences`."""
        return self.records.view(torch.uint8)[:, self.dim + 2]

    @property
    def num_rows(self) -> int:
        """Rows that there are, row 0 included."""
        return self.live.num_rows

    @property
    def steps(self) -> int:
        """Steps of the optimizer so far."""
        return self.live.steps

    @property
    def scale(self) -> float:
        """What a value of 1 stands for."""
        return self.live.scale

    @property
    def pending(self) -> Pending | None:
        """Gradients that wait for a step."""
        return self.live.pending

    # -- sizes ---------------------------------------------------------------------------------------------------------

    @property
    def start_scale(self) -> float:
        """The scale of rows that nobody has trained; 1 where all start at zero."""
        return HEADROOM * self.bound / 3**0.5 / loops.LARGEST or 1 / loops.LARGEST

    @property
    def nbytes(self) -> int:
        """Bytes of rows, of their state, and of what says which ids have them, but for the map."""
        return self.row_nbytes + self.index_nbytes

    @property
    def row_nbytes(self) -> int:
        """Bytes of rows and of what is kept of each."""
        return self.num_rows * (self.dim + STATE_NBYTES)

    @property
    def index_nbytes(self) -> int:
        """Bytes of counts of ids without rows, and of rows that are not in the map."""
        return self.seen.nbytes + self.recent_ids.nbytes + self.recent_rows.nbytes

    @property
    def anchor_value(self) -> float:
        """What the anchor is after these steps: an average of models has another value, and so can be told."""
        return float(1 + self.steps % 128)

    def occurrences(self) -> Tensor:
        """About how often the id of each row occurred, row 0 included."""
        return torch.from_numpy(loops.COUNT_VALUES).to(self.counts.device)[self.counts[: self.num_rows].long()]

    @property
    def seen_bits(self) -> int:
        """Bits of the count of an id that has no row yet."""
        return self._open_bits if self.is_open else 0

    @property
    def needed(self) -> int:
        """Occurrences after which an id has a row."""
        return self.min_count if self.is_open else 1 << 62

    @property
    def _open_bits(self) -> int:
        return next(bits for bits in (0, 1, 2, 4, 8) if self.min_count <= 1 << bits)

    @property
    def _open_nbytes(self) -> int:
        """Bytes of the counts while ids get rows."""
        return self.num_embeddings * self._open_bits // 8 + 1

    # -- reading -------------------------------------------------------------------------------------------------------

    def find(self, ids: Tensor) -> Tensor:
        """The row of each of the int64 ids `(n)`; 0 where it has none."""
        if self.in_loops and ids.is_cpu:
            rows = torch.empty_like(ids)
            loops.find_rows(self.line(), ids.contiguous().numpy(), rows.numpy())
            return rows
        self.compact()
        found: Tensor = self.map(ids.to(self.records.device))
        return found

    def read(self, ids: Tensor) -> Tensor:
        """The float32 vectors of ids `(n)`."""
        rows = self.find(ids).to(self.records.device)
        return self.codes.index_select(0, rows).float() * self.scale

    def seen_before(self, ids: Tensor) -> Tensor:
        """How often ids that have no row were seen."""
        if not self.seen_bits:
            return torch.zeros_like(ids)
        bit = ids * self.seen_bits
        return (self.seen[bit >> 3].long() >> (bit & 7)) & ((1 << self.seen_bits) - 1)

    @property
    def in_loops(self) -> bool:
        """Whether compiled loops serve."""
        return compiled.available and self.records.is_cpu and is_eager()

    def line(self) -> Array:
        """The table in numbers, as compiled loops read it."""
        self.notice_moves()
        if not len(self._line):
            line = np.zeros(loops.TABLE_COLUMNS, np.int64)
            line[[loops.NUM_EMBEDDINGS, loops.DIM, loops.KEY]] = self.num_embeddings, self.dim, self.key
            line[[loops.BITS, loops.RANKS]] = self.map.bits.data_ptr(), self.map.ranks.data_ptr()
            line[[loops.RECENT_IDS, loops.RECENT_ROWS]] = self.recent_ids.data_ptr(), self.recent_rows.data_ptr()
            line[[loops.RECENT_SIZE, loops.NUM_MAPPED]] = len(self.recent_ids), self.map.num_rows
            line[[loops.RECORDS, loops.CAPACITY]] = self.records.data_ptr(), len(self.records)
            line[[loops.SEEN, loops.SEEN_BITS]] = self.seen.data_ptr(), self.seen_bits
            line[[loops.MIN_COUNT, loops.SHARED]] = self.needed, self.trains_unseen
            self._line = line
        return self._line

    def notice_moves(self) -> None:
        """Notice what torch has moved, which it does with the tensors of a table that is sent to another process."""
        if self.was_sent and len(self._line):
            now = [each.data_ptr() for each in (self.map.bits, self.map.ranks, self.records, self.seen)]
            if self._line[[loops.BITS, loops.RANKS, loops.RECORDS, loops.SEEN]].tolist() != now:
                self.has_moved()

    def has_moved(self) -> None:
        """Note that something lies elsewhere now."""
        self.moves += 1
        self._line = NO_LINE

    # -- gradients -----------------------------------------------------------------------------------------------------

    def settle(self, anchor: Tensor) -> None:
        """Let the anchor's gradient be the norm of what is pending, exactly: a hook after backward."""
        live = self.live
        if not live.is_settled and live.pending is not None and anchor.grad is not None:
            anchor.grad.copy_(live.pending.norm)
            live.is_settled = True

    def has_used(self, anchor: Tensor) -> bool:
        """Whether what is pending was zeroed, which the anchor's gradient tells; a GPU is not waited for."""
        if not self.live.is_settled:
            return False  # a backward pass is under way
        gradient, pending = anchor.grad, self.live.pending
        if gradient is None or pending is None:
            return True
        return gradient.is_cpu and float(gradient) == 0 and float(pending.norm) != 0

    # -- rows ----------------------------------------------------------------------------------------------------------

    def give_rows(self, ids: Tensor) -> None:
        """Give rows to distinct ids that have none: new ones."""
        self.compact()
        first, self.live.num_rows = self.num_rows, self.num_rows + len(ids)
        self.reserve(self.num_rows)
        for block in blocks(len(ids), BLOCK):
            at = block.to(ids.device)
            self.codes[at + first] = self.start_codes(ids[at])
        self.recent_ids, self.recent_rows = ids.cpu(), torch.arange(first, self.num_rows, device="cpu").int()
        self.compact()

    def close(self) -> None:
        """Give rows to no more ids."""
        self.is_open, self.seen = False, self.seen.new_zeros(1)
        self.has_moved()

    def fit(self, weight: Tensor) -> None:
        """Give rows to all ids, rounded from trained vectors `(num_embeddings, dim)`."""
        largest = float(weight.abs().max())
        root = float(weight.float().square().mean().sqrt())
        self.live.scale = (min(largest, HEADROOM * root) or 1.0) / loops.LARGEST
        ids = torch.arange(self.num_embeddings, device=self.records.device)
        self.give_rows(ids[self.map(ids) == 0])
        for block in blocks(self.num_embeddings, BLOCK):
            at = block.to(weight.device)
            rounded = (weight[at].float() / self.scale).round_().clamp_(-loops.LARGEST, loops.LARGEST)
            self.codes[block.to(self.records.device) + 1] = rounded.to(self.records.device, torch.int8)
        self.counts[1 : self.num_rows] = 1

    def release(self) -> None:
        """Give the rows back: only the map stays, of the ids that had them."""
        self.compact()
        self.records, self.seen, self.is_open = self.records[:1].clone(), self.seen.new_zeros(1), False
        self.live.num_rows, self.live.pending = 1, None
        self.has_moved()

    def start_codes(self, ids: Tensor) -> Tensor:
        """Rows drawn from U(−bound, bound), the same for an id whenever it gets its row."""
        steps = torch.tensor(self.bound / self.scale, dtype=torch.float32)
        places = (ids.unsqueeze(1) * self.dim + torch.arange(self.dim, device=ids.device)) * 2
        values = (uniform(self.init_key, places) * 2 - 1) * steps.to(ids.device)
        rounded = (values + uniform(self.init_key, places + 1)).floor_()
        return rounded.clamp_(-loops.LARGEST, loops.LARGEST).to(torch.int8)

    @property
    def init_key(self) -> int:
        """Of the random numbers that rows start with."""
        return make_key(self.key, 1)

    def reserve(self, num_rows: int) -> None:
        """Have memory for so many rows; on the CPU for all, since memory that is not touched costs nothing."""
        used = len(self.records)
        if num_rows > used:
            most = self.num_embeddings + 1
            records = self._new_records(
                most if self.records.is_cpu else min(most, num_rows * 5 // 4), self.records.device
            )
            records[:used] = self.records
            self.records = records
            self.has_moved()

    def _new_records(self, capacity: int, device: torch.device | str | None) -> Tensor:
        shape = capacity, self.dim + STATE_NBYTES
        if torch.device(device or torch.get_default_device()).type == "cpu":
            return torch.from_numpy(np.zeros(shape, np.int8))  # pages that are not touched are not there
        return torch.zeros(shape, dtype=torch.int8, device=device)

    # -- rows that are not in the map yet ------------------------------------------------------------------------------

    @property
    def num_recent(self) -> int:
        """Rows that the map does not know."""
        return max(0, self.num_rows - 1 - self.map.num_rows)

    @property
    def is_crowded(self) -> bool:
        """Whether so many are not in the map that it is time to put them there."""
        return self.num_recent > max(FEWEST_RECENT, self.map.num_rows // RECENT_SHARE)

    def make_room(self, num_ids: int) -> None:
        """Let so many ids get rows without any memory's moving."""
        self.reserve(min(self.num_rows + num_ids, self.num_embeddings + 1))
        needed = self.num_recent + min(num_ids, self.num_embeddings - self.num_rows + 1)
        if 4 * needed > 3 * len(self.recent_ids):
            ids, rows = self.recent()
            self._forget_recent(2 ** (4 * needed // 3).bit_length())
            self._insert(ids, rows)

    def recent(self) -> tuple[Tensor, Tensor]:
        """Ids that are not in the map, and their rows, in the order of rows."""
        used = (self.recent_ids >= 0).nonzero().squeeze(1)
        rows = self.recent_rows[used].long()
        order = rows.argsort()
        return self.recent_ids[used][order], rows[order]

    def _insert(self, ids: Tensor, rows: Tensor) -> None:
        """Put ids with consecutive rows into the hash table."""
        if len(ids):
            loops.insert_recent(self.recent_ids.numpy(), self.recent_rows.numpy(), ids.numpy(), int(rows[0]))

    def _forget_recent(self, size: int = 0) -> None:
        self.recent_ids = torch.full((size,), loops.EMPTY, dtype=torch.int64, device="cpu")
        self.recent_rows = torch.zeros(size, dtype=torch.int32, device="cpu")
        self.has_moved()

    def compact(self) -> None:
        """Put all ids with rows into the map, and their rows in its order. Nobody can tell, except by the time."""
        if not self.num_recent:
            return
        ids, rows = self.recent()
        order = ids.argsort()
        ids, rows = ids[order], rows[order]
        before = self._rows_before(ids)
        _merge(self.records[: self.num_rows], rows, before, in_loops=self.in_loops)
        self.map.insert(ids.to(self.map.bits.device))
        self._forget_recent()

    def _rows_before(self, ids: Tensor) -> Tensor:
        """How many rows of the map, and row 0, come before those of ids that are not in it."""
        ids = ids.to(self.map.bits.device)
        word = torch.div(ids, 64, rounding_mode="floor")
        below = self.map.bits[word] & ((torch.ones_like(ids) << (ids - word * 64)) - 1)
        return self.map.ranks[word] + count_bits(below) + 1

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> Tensor:
        """What else there is to save, in one tensor of integers that no average makes sense of."""
        return torch.tensor(self._packed(), dtype=torch.int64, device="meta" if self.records.is_meta else "cpu")

    @numbers.setter
    def numbers(self, saved: Tensor) -> None:
        if not saved.is_meta:
            self._unpack(saved.tolist())

    def _packed(self) -> list[int]:
        live = self.live
        floats = struct.unpack("<3q", struct.pack("<3d", live.scale, live.value_squares, live.value_count))
        return [live.steps, self.key, int(self.is_open), *floats]

    def _unpack(self, packed: list[int]) -> None:
        self.live.steps, self.key, is_open, *floats = packed
        self.is_open, live = bool(is_open), self.live
        live.scale, live.value_squares, live.value_count = struct.unpack("<3d", struct.pack("<3q", *floats))

    def _index_state(self) -> dict[str, Tensor]:
        self._trim()
        return {"records": self.records, "seen": self.seen, "numbers": self.numbers}

    def _trim(self) -> None:
        """Put rows in order, and give back memory that none of them uses: files hold all that is behind a tensor."""
        self.compact()
        if self.num_rows < len(self.records):
            self.records = self.records[: self.num_rows].clone()
            self.has_moved()

    def load_rows(self, state: dict[str, Tensor], *, assign: bool = False) -> None:
        """Become what was saved, with as many rows; the map is loaded by itself.

        assign: on the device of what was saved, as in torch: a table on the meta device then leaves it.
        """
        for name in self.device_tensors:
            device = state[name].device if assign else getattr(self, name).device
            setattr(self, name, state[name].to(device, copy=True))
        self.numbers = state["numbers"]
        self.live.num_rows, self.live.pending, self.live.is_settled = len(self.records), None, True
        self._forget_recent()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        found = {name: state_dict.pop(prefix + name, None) for name in self.index_state}
        local_metadata, _, missing_keys, _, error_msgs = args
        missing = [prefix + name for name, tensor in found.items() if tensor is None]
        missing_keys += missing
        if missing:
            return
        width = found["records"].shape[1] - STATE_NBYTES
        if width != self.dim or len(found["seen"]) not in (1, self._open_nbytes):
            theirs = f"rows of {width} values and counts of {found['seen'].numel()} bytes"
            ours = f"{self.dim} and {self._open_nbytes}"
            error_msgs.append(f"rows mismatch for {prefix}records: the checkpoint has {theirs}, the module {ours}.")
            return
        self.load_rows(found, assign=local_metadata.get("assign_to_params_buffers", False))

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no optimizer yet, and no memory that it does not use."""
        self.was_sent = True
        state = super().__getstate__() | {"has_optimizer": False, "_line": NO_LINE, "was_sent": False}
        state["live"] = replace(self.live, pending=None, is_settled=True)
        del state["numbers"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrived = {name: torch.as_tensor(state[name][0]).view(state[name][1]) for name in self.device_tensors}
        super(IndexModule, self).__setstate__(state | arrived)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        packed = self._packed()
        applied = super()._apply(fn, recurse)
        self._unpack(packed)  # numbers are on no device
        self.has_moved()
        return applied

    def vectors(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Ids that have rows and their vectors, in the order of ids, some at a time."""
        self.compact()
        first = 1
        for ids in self.map.ids():
            yield ids, self.codes[first : first + len(ids)].float() * self.scale
            first += len(ids)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_rows={self.num_rows - 1:,}, dim={self.dim}, min_count={self.min_count}"


def _merge(values: Tensor, rows: Tensor, before: Tensor, *, in_loops: bool) -> None:
    """Move `rows` of `values`, its last ones, to where `before` rows of the others come before them."""
    moved = values[rows]
    if in_loops:
        loops.merge(values.numpy(), moved.numpy(), before.numpy())
        return
    others = values[: len(values) - len(rows)].clone()
    at = before + torch.arange(len(rows), device=before.device)
    is_other = torch.ones(len(values), dtype=torch.bool, device=values.device)
    is_other[at] = False
    values[is_other], values[at] = others, moved
