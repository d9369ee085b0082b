"""Which ids get rows, and which lose them: the rules, and admission in plain torch, which is its definition.

Ids without rows are counted. Where ids are bounded each has a few bits of its own; open ids share counters of a byte in
a count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update (Estan and Varghese, 2002): an id has
`DEPTH` counters, the smallest of which is its count, and only those that are too small for it grow. So no count is too
small, and few are too large while the sketch has room. When it has counted half as many occurrences as it has counters
of a depth, all are halved (Einziger, Friedman and Manes, "TinyLFU", 2017): what is not seen again is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from cce.indexing import hash32_parts, make_key, uniform
from cce.kernels import int8 as loops

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

DEPTH = loops.DEPTH
COUNTER_NBYTES = 1 << 20
STAMP_NBYTES = 4  # of a step
Eviction = Literal["lfu", "lru"]


@dataclass(frozen=True)
class RowPolicy:
    """Which ids get rows, and which lose them.

    min_count: occurrences in training after which an id has a row; 1: from the first on.
    probability: of getting a row, at each occurrence; nothing is counted then.
    counter_nbytes: of the sketch that counts open ids without rows.
    max_rows: the most rows there ever are.
    eviction: which rows are taken away when there are as many: of ids that occur rarely ("lfu", counts are halved as
        rows come and go), of those not seen for long ("lru"), or None: new ids get no rows any more.
    time_to_live: steps after which an id that did not occur loses its row.
    """

    min_count: int = 1
    probability: float | None = None
    counter_nbytes: int = COUNTER_NBYTES
    max_rows: int | None = None
    eviction: Eviction | None = "lfu"
    time_to_live: int | None = None

    def __post_init__(self) -> None:
        if self.probability is not None and self.min_count > 1:
            got = f"min_count={self.min_count} and probability={self.probability}"
            raise ValueError(f"give one of min_count and probability, got {got}.")

    @property
    def state_nbytes(self) -> int:
        """Bytes that a row has besides its values."""
        return loops.STATE_NBYTES + STAMP_NBYTES * self.has_stamps

    @cached_property
    def has_stamps(self) -> bool:
        """Whether each row keeps the step at which its id occurred last."""
        return self.time_to_live is not None or (self.max_rows is not None and self.eviction == "lru")

    @property
    def share(self) -> int:
        """Rows that are taken away at a time, at least."""
        return max(1, (self.max_rows or 0) // 16)

    @property
    def most_spare(self) -> int:
        """Rows that are kept free for ids of the next step, at most."""
        return max(1, (self.max_rows or 0) // 8)


def seen_before(table: Int8Rows, ids: Tensor) -> Tensor:
    """How often ids that have no row were seen."""
    if table.sketch_width:
        return table.seen[_cells(table, ids)].long().amin(1)
    if not table.seen_bits:
        return torch.zeros_like(ids)
    bit = ids * table.seen_bits
    return (table.seen[bit >> 3].long() >> (bit & 7)) & ((1 << table.seen_bits) - 1)


def wanted(table: Int8Rows, ids: Tensor, before: Tensor, counts: Tensor, step: int) -> Tensor:
    """Which ids without rows a step would give rows to, if there is room: they occur `counts` times in it."""
    often = before + counts >= table.needed
    chance = table.policy.probability
    if chance is None:
        return often
    drawn = uniform(make_key(table.key, 2 * step + 3), ids).double()
    return often & (drawn < chance * counts)


def note_seen(table: Int8Rows, ids: Tensor, before: Tensor, counts: Tensor, admitted: Tensor) -> None:
    """Count occurrences of distinct ids, none of which had a row; bits of those that were admitted are cleared."""
    if table.sketch_width:
        out = ~admitted
        held = (before + counts)[out].clamp(max=255).to(torch.uint8)
        cells = _cells(table, ids[out])
        table.seen.scatter_reduce_(0, cells.view(-1), held.repeat_interleave(DEPTH), "amax")
        table.live.record["counted"] += int(counts[out].sum())
    elif table.seen_bits:
        held = torch.where(admitted, 0, (before + counts).clamp(max=(1 << table.seen_bits) - 1))
        bit = ids * table.seen_bits
        change = (held - before) << (bit & 7)
        table.seen.index_add_(0, bit >> 3, change.to(torch.uint8))  # modulo 256: what is taken away is


def _cells(table: Int8Rows, ids: Tensor) -> Tensor:
    """The counters of ids `(n, DEPTH)`: multiples of one half of a hash, added to the other."""
    low, high = hash32_parts(make_key(table.key, 3), ids)
    depth = torch.arange(DEPTH, device=ids.device)
    mixed = (low.unsqueeze(1) + depth * high.unsqueeze(1)) & 0xFFFF_FFFF
    return ((mixed * table.sketch_width) >> 32) + depth * table.sketch_width


def age_sketch(table: Int8Rows) -> None:
    """Halve all counts, if the sketch has counted enough."""
    if int(table.live.record["counted"][0]) >= table.ages_at:
        table.seen >>= 1
        table.live.record["counted"] //= 2
