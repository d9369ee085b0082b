"""`Int8Rows`: rows of int8 values that ids earn, and three bytes of each that their optimizer keeps.

An id gets a row when it has occurred `min_count` times in training; until then, and if it never occurs, it reads row 0,
which is neutral: zero, and frozen. Rows exist for ids that have earned one, whatever the numbering of ids. The ids with
rows are in a `RowMap`, their rows in the order of ids; ids that got rows since are in `RecentRows`, with rows at the
end, until `compact` puts everything in order. Where a row lies is nowhere to be seen: random numbers and sums depend on
ids alone.

Low-precision training of embedding tables: Zhang et al., "Training with low-precision embedding tables" (2018); Li et
al., "Adaptive low-precision training for embeddings in click-through rate prediction" (AAAI 2023).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from cce import compiled
from cce.embeddings.admission import RowPolicy
from cce.embeddings.live_rows import Live, RecentRows, describe, merge_rows, register
from cce.indexing import IndexModule, OpenRowMap, RowMap, blocks, make_key, uniform
from cce.kernels import int8 as loops
from cce.kernels import is_eager

if TYPE_CHECKING:
    from cce.embeddings.row_gradients import Pending
    from cce.embeddings.shards import Shards

HEADROOM = 8  # the largest value of int8 stands for this many times the root mean square of the values
MOST_COUNTED = 256  # occurrences before a row
BLOCK = 1 << 16  # rows at a time
MOST_ROWS = 2**31 - 2  # rows have numbers of 32 bits
NEVER = 1 << 62
COUNTED = ("counted", "demand", "admitted", "refused", "evicted", "expired")  # saved, and what `print` shows: the last
ANY = RowPolicy()
DRAWN_AT_A_TIME = 1 << 12  # new rows: a dozen integers of 8 bytes are held for each value


class Int8Rows(IndexModule):
    """Rows of `dim` int8 values times one scale, for the ids in `[0, num_embeddings)`, or any, that have earned them.

    policy: which ids get rows, and which lose them.
    bound: new rows start in U(−bound, bound).
    trains_unseen: whether row 0 is trained by the ids that read it, instead of staying zero.
    shards: the share of ids whose rows these are; None: all.
    """

    map: RowMap
    records: Tensor  # (capacity, width) int8: values, three bytes of state, and perhaps the last step in four
    index_state = ("records", "seen", "numbers")
    device_tensors = ("records", "seen")

    def __init__(
        self,
        num_embeddings: int | None,
        dim: int,
        *,
        policy: RowPolicy = ANY,
        bound: float = 0.0,
        trains_unseen: bool = False,
        key: int = 0,
        shards: Shards | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if shards is not None and policy.max_rows is not None:
            policy = replace(policy, max_rows=-(-policy.max_rows // shards.world_size))
        self.num_embeddings, self.dim, self.policy, self.bound = num_embeddings, dim, policy, bound
        self.width = dim + policy.state_nbytes
        self.trains_unseen = trains_unseen
        self.key, self.live, self.shards = key, Live(), shards
        self.is_local = shards is not None
        register(self)
        self.live.record["num_rows"], self.live.record["scale"] = 1, self.start_scale
        self.name = "an open table" if num_embeddings is None else f"a table of {num_embeddings:,} ids"
        self.map = OpenRowMap(device=device) if num_embeddings is None else RowMap(num_embeddings, device=device)
        self.map.is_local = self.is_local
        self.recent = RecentRows()
        self._set_open(is_open=True)
        self.seen = torch.zeros(self._open_nbytes, dtype=torch.uint8, device=device)
        self.records = self._new_records(1, device)

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
    def last_steps(self) -> Tensor:
        """The step in which each row was moved last `(num_rows)`, int64; zeros where rows do not keep it."""
        stamps = self.records.view(torch.uint8)[: self.num_rows, self.dim + loops.STATE_NBYTES :].long()
        return (stamps << torch.arange(0, 8 * stamps.shape[1], 8, device=stamps.device)).sum(1)

    def stamp(self, rows: Tensor) -> None:
        """Let rows keep that they are moved in this step, if they do."""
        stamps = self.records.view(torch.uint8)
        for byte in range(self.width - self.dim - loops.STATE_NBYTES):
            stamps[rows, self.dim + loops.STATE_NBYTES + byte] = (self.steps >> 8 * byte) & 255

    @property
    def num_rows(self) -> int:
        """Rows that there are, row 0 included."""
        return int(self.live.record["num_rows"][0])

    @property
    def steps(self) -> int:
        """Steps of the optimizer so far."""
        return int(self.live.record["steps"][0])

    @property
    def scale(self) -> float:
        """What a value of 1 stands for."""
        return float(self.live.record["scale"][0])

    @property
    def pending(self) -> Pending | None:
        """Gradients that wait for a step."""
        return self.live.pending

    @property
    def counters(self) -> dict[str, int]:
        """How many ids have rows, and how often an id got one, got none since the table was full, or lost it.

        `evicted` made space for others; `expired` had not occurred for long.
        """
        record = self.live.record[0]
        return {"rows": max(self.num_rows - 1, self.map.num_rows)} | {name: int(record[name]) for name in COUNTED[2:]}

    # -- sizes ---------------------------------------------------------------------------------------------------------

    @property
    def start_scale(self) -> float:
        """The scale of rows that nobody has trained; 1 where all start at zero."""
        return HEADROOM * self.bound / 3**0.5 / loops.LARGEST or 1 / loops.LARGEST

    @property
    def nbytes(self) -> int:
        """Bytes of rows, of their state, and of what says which ids have them, except the map."""
        return self.row_nbytes + self.index_nbytes

    @property
    def row_nbytes(self) -> int:
        """Bytes of rows and of what is kept of each."""
        return self.num_rows * self.width

    @property
    def index_nbytes(self) -> int:
        """Bytes of counts of ids without rows, and of rows that are not in the map."""
        return self.seen.nbytes + self.recent.nbytes

    @property
    def anchor_value(self) -> float:
        """What the anchor is after these steps: an average of models has another value, and so can be told."""
        return float(1 + self.steps % 128)

    def check_not_averaged(self, anchor: Tensor) -> None:
        """Reject the anchor of an average of models."""
        if self.live.has_optimizer or anchor.is_meta or float(anchor.detach()) == self.anchor_value:
            return
        raise ValueError(
            f"int8 rows of {self.name} must be those of one model, got an average (EMA or SWA): rows are not averaged. "
            "Average the network alone, or finalize first."
        )

    def occurrences(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """About how often the ids of these rows occurred, row 0 included."""
        values = torch.from_numpy(loops.COUNT_VALUES).float().to(self.records.device)
        return values[self.counts[: self.num_rows][rows].int()]

    @property
    def seen_bits(self) -> int:
        """Bits of the count of an id that has no row yet."""
        return self._open_bits if self.is_open else 0

    @property
    def needed(self) -> int:
        """Occurrences after which an id has a row."""
        return self.policy.min_count if self.is_open else NEVER

    @cached_property
    def most_rows(self) -> int:
        """The most rows that there may be, row 0 included."""
        limits = (self.num_embeddings, self.policy.max_rows, MOST_ROWS)
        return 1 + min(limit for limit in limits if limit is not None)

    @cached_property
    def expires_every(self) -> int:
        """Steps after which rows of ids that did not occur for long are looked for."""
        return max(1, (self.policy.time_to_live or NEVER) // 16)

    def _set_open(self, *, is_open: bool) -> None:
        """Say whether ids still get rows, and what follows for the step.

        sketch_width: counters of a depth, of open ids that have no row yet; 0 if nothing is counted.
        ages_at: occurrences after which these counts are halved.
        evicts_above: the most rows, row 0 included, with which there surely is space for the next step.
        """
        self.is_open, policy = is_open, self.policy
        is_counted = is_open and self.num_embeddings is None and policy.min_count > 1
        self.sketch_width = max(1, policy.counter_nbytes // loops.DEPTH) if is_counted else 0
        self.ages_at, self.evicts_above = (self.sketch_width + 1) // 2 or NEVER, NEVER
        if is_open and policy.max_rows is not None:
            self.evicts_above = self.most_rows - (1 if policy.eviction is None else policy.most_spare)

    @property
    def _open_bits(self) -> int:
        if self.num_embeddings is None:
            return 0
        return next(bits for bits in (0, 1, 2, 4, 8) if self.policy.min_count <= 1 << bits)

    @property
    def _open_nbytes(self) -> int:
        """Bytes of the counts while ids get rows."""
        return (self.num_embeddings or 0) * self._open_bits // 8 + 1 + self.sketch_width * loops.DEPTH

    # -- reading -------------------------------------------------------------------------------------------------------

    def find(self, ids: Tensor) -> Tensor:
        """The row of each of the int64 ids `(n)`; 0 where it has none."""
        if self.in_loops and ids.is_cpu:
            rows = torch.empty_like(ids)
            loops.find_rows(self.describe(), ids.contiguous().numpy(), rows.numpy())
            return rows
        return self.find_plain(ids)

    def find_plain(self, ids: Tensor) -> Tensor:
        """The same in plain torch, on the device of the rows."""
        self.compact()
        found: Tensor = self.map(ids.to(self.records.device))
        return found

    def read(self, ids: Tensor) -> Tensor:
        """The float32 vectors of ids `(n)`, in plain torch."""
        return self.codes.index_select(0, self.find_plain(ids)).float() * self.scale

    @property
    def in_loops(self) -> bool:
        """Whether compiled loops serve."""
        return self.can_loop and is_eager()

    @property
    def can_loop(self) -> bool:
        """Whether they do unless torch is traced."""
        return compiled.available and self.records.is_cpu

    def describe(self) -> int:
        """Let the record say where everything lies now; its address."""
        if self.live.is_old or self.live.was_sent:
            describe(self)
        return self.live.address

    def has_moved(self) -> None:
        """Note that something lies elsewhere now."""
        self.live.is_old = True
        self.live.moves += 1

    # -- rows ----------------------------------------------------------------------------------------------------------

    def give_rows(self, ids: Tensor) -> None:
        """Give rows to distinct ids that have none: new ones."""
        self.compact()
        first = self.num_rows
        self.live.record["num_rows"] += len(ids)
        self.reserve(self.num_rows)
        if self.in_loops:
            loops.start_rows(self.describe(), ids.contiguous().numpy(), first)
        for block in blocks(0 if self.in_loops else len(ids), DRAWN_AT_A_TIME):
            at = block.to(ids.device)
            self.codes[at + first] = self.start_codes(ids[at])
            self.stamp(at + first)
        self._merge_into_map(ids.cpu(), torch.arange(first, self.num_rows, dtype=torch.int32, device="cpu"))

    def close(self) -> None:
        """Give rows to no more ids."""
        self._set_open(is_open=False)
        self.seen = self.seen.new_zeros(1)
        self.has_moved()

    def fit(self, weight: Tensor) -> None:
        """Give rows to all ids, rounded from trained vectors `(num_embeddings, dim)`."""
        if len(weight) >= self.most_rows:
            got = f"max_rows={self.policy.max_rows}"
            raise ValueError(f"max_rows must be at least {len(weight)}, for rows of all ids, got {got}.")
        largest = float(weight.abs().max())
        root = float(weight.float().square().mean().sqrt())
        self.live.record["scale"] = (min(largest, HEADROOM * root) or 1.0) / loops.LARGEST
        ids = torch.arange(len(weight), device=self.records.device)
        self.give_rows(ids[self.map(ids) == 0])
        for block in blocks(len(weight), BLOCK):
            at = block.to(weight.device)
            rounded = (weight[at].float() / self.scale).round_().clamp_(-loops.LARGEST, loops.LARGEST)
            self.codes[block.to(self.records.device) + 1] = rounded.to(self.records.device, torch.int8)
        self.counts[1 : self.num_rows] = 1

    def release(self) -> None:
        """Give the rows back: only the map stays, of the ids that had them."""
        self.compact()
        self._set_open(is_open=False)
        self.records, self.seen = self.records[:1].clone(), self.seen.new_zeros(1)
        self.live.record["num_rows"], self.live.pending = 1, None
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
        """Have memory for this many rows, and for those that are still earned; on the CPU, where memory that is not
        touched costs nothing, for all.
        """
        used = len(self.records)
        if num_rows > used:
            capacity, most = num_rows, self.most_rows
            if self.is_open:
                is_whole = self.records.is_cpu and most <= MOST_ROWS
                capacity = most if is_whole else min(most, num_rows * 5 // 4)
            records = self._new_records(capacity, self.records.device)
            records[:used] = self.records
            self.records = records
            self.has_moved()

    def _new_records(self, capacity: int, device: torch.device | str | None) -> Tensor:
        shape = capacity, self.width
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
        return bool(loops.is_crowded(self.num_recent, self.map.num_rows))

    def make_room(self, num_ids: int) -> None:
        """Let this many ids get rows without any memory's moving."""
        self.reserve(min(self.num_rows + num_ids, self.most_rows))
        needed = self.num_recent + min(num_ids, self.most_rows - self.num_rows)
        if 4 * needed > 3 * len(self.recent):
            self._set_recent(self.recent.grown(needed))

    def _set_recent(self, recent: RecentRows) -> None:
        self.recent = recent
        self.has_moved()

    def compact(self) -> None:
        """Put all ids with rows into the map, and their rows in its order. Nobody can tell, except by the time."""
        if self.num_recent:
            self._merge_into_map(*self.recent.used())

    def _merge_into_map(self, ids: Tensor, rows: Tensor) -> None:
        """Put ids, which have the last rows, into the map."""
        order = self.map.in_order(ids)
        ids, rows = ids[order], rows[order].long()
        del order
        before = torch.cat([self.map.rows_before(block) for block in torch.split(ids, BLOCK)])
        merge_rows(self.records[: self.num_rows], rows, before, in_loops=self.in_loops)
        self.map.insert(ids.to(self.map.device))
        self._set_recent(RecentRows())

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
        record = self.live.record[0]
        floats = (float(record[name]) for name in ("scale", "value_squares", "value_count"))
        counted = (int(record[name]) for name in COUNTED)
        return [self.steps, self.key, int(self.is_open), *counted, *struct.unpack("<3q", struct.pack("<3d", *floats))]

    def _unpack(self, packed: list[int]) -> None:
        record = self.live.record
        record["steps"], self.key, is_open, *numbers = packed
        self._set_open(is_open=bool(is_open))
        for name, number in zip(COUNTED, numbers[:-3], strict=True):
            record[name] = number
        values = struct.unpack("<3d", struct.pack("<3q", *numbers[-3:]))
        record["scale"], record["value_squares"], record["value_count"] = values

    def forget_counters(self) -> None:
        """Count from 0 what ranks add up."""
        for name in (*COUNTED, "value_squares", "value_count"):
            self.live.record[name] = 0

    def forget_others(self) -> None:
        """Forget how often ids of other ranks were seen."""
        bits, shards = self.seen_bits, self.shards
        for first in range(0, len(self.seen) if bits else 0, BLOCK):
            own = self.seen[first : first + BLOCK]
            ids = torch.arange(first * 8 // bits, (first + len(own)) * 8 // bits, device=own.device)
            assert shards is not None
            masks = shards.is_mine(ids).view(len(own), -1) * (
                ((1 << bits) - 1) << torch.arange(0, 8, bits, device=own.device)
            )
            own &= masks.sum(1).to(own)

    def _index_state(self) -> dict[str, Tensor]:
        self.trim()
        return {"records": self.records, "seen": self.seen, "numbers": self.numbers}

    def trim(self) -> None:
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
        self.live.record["num_rows"] = len(self.records)
        self.live.pending, self.live.is_settled = None, True
        self._set_recent(RecentRows())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self.has_moved()  # the map is loaded after this, whatever becomes of the rows
        found = {name: state_dict.pop(prefix + name, None) for name in self.index_state}
        local_metadata, _, missing_keys, _, error_msgs = args
        missing = [prefix + name for name, tensor in found.items() if tensor is None]
        missing_keys += missing
        if missing:
            return
        width = found["records"].shape[1]
        if width != self.width or len(found["seen"]) not in (1, self._open_nbytes):
            theirs = f"rows of {width} bytes and counts of {found['seen'].numel()}"
            ours = f"{self.width} and {self._open_nbytes}"
            error_msgs.append(f"rows mismatch for {prefix}records: the checkpoint has {theirs}, the module {ours}.")
            return
        self.load_rows(found, assign=local_metadata.get("assign_to_params_buffers", False))

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no optimizer yet, and no memory that it does not use."""
        self.live.was_sent = True
        self.trim()
        return self.__dict__ | {"live": self.live.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"live": state["live"].copy()})
        register(self)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        packed = self._packed()
        applied = super()._apply(fn, recurse)
        self._unpack(packed)  # numbers are on no device
        self.has_moved()
        return applied

    def extra_repr(self) -> str:
        """What `print` shows."""
        counted = (f"{name}={value:,}" for name, value in self.counters.items())
        return f"{', '.join(counted)}, dim={self.dim}, min_count={self.policy.min_count}"
