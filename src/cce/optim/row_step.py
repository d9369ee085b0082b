"""One step of int8 rows: Adam's rule, with a second moment of one byte a row.

Adam keeps a second moment for each value. Here it is a product, as in Adafactor (Shazeer and Stern, 2018): a factor `f`
for each frequency group and dimension, of mean 1, times a number `s` for each row, which follows its gradients `G`:

    s ← β s + (1 - β) · mean over dimensions of G² / f,    v = f · (s + (1 - β) r) · n / (n + 1) / (1 - β^t)

The step is `lr · G / √v`. `s` is followed when a row has a gradient, and divided by the weight of all steps, as by
Adam. So the first step of an id that is seen late is up to `lr / √(1 - β)`, and later ones are smaller. What few
gradients say of their size is uncertain: `v` counts one more, of the mean square `r` of the frequency group, beside the
`n` occurrences of the id. Adam's first step has the same size however small the gradient is; this one does not.

One byte holds `s`: 64 powers of two in four parts each, rounded at random. A second byte counts steps of the row, so
that numbers to round by fill [0, 1) evenly, and a third how often its id occurred: the frequency group is the octave of
that count.

Weight decay is that of `torch.optim.Adam` with dense gradients: it counts for every step, seen or not, so that a row
gets the decay of all steps since it was last seen, `1 / p` of them, where `p` is how often its id occurs in a step.

    u = (T - lr · G / √v) / (1 + lr · weight_decay / (p · √v)),    value = round(u / scale)

Plain torch is the definition, and compiled loops give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import RUNS, longest_run, parallel_for
from cce.distributed import current_ranks, sum_over_ranks
from cce.embeddings import age_sketch, make_space, note_seen, seen_before, waits, wanted
from cce.indexing import make_key, row_noise, uniform, uniform_pair
from cce.kernels import int8 as loops
from cce.kernels import is_eager

if TYPE_CHECKING:
    from cce.embeddings import Int8Rows, Pending

LARGEST, NUM_GROUPS = loops.LARGEST, loops.NUM_GROUPS
HEADROOM = 6  # the largest value stands for this many times the root mean square of values, by how often they are seen
MAY_MOVE = 1.25  # by which a scale may be off before values are rounded again
BLOCK = 1 << 16  # rows at a time
PARALLEL = 1 << 17  # values below which threads cost more than they save


class Rule(NamedTuple):
    """The settings of a step."""

    lr: float
    weight_decay: float
    beta: float
    eps: float


@dataclass(slots=True)
class RowStep:
    """A table, the optimizer's state of it, and the gradients of a step."""

    table: Int8Rows
    state: dict[str, Tensor]
    pending: Pending
    rule: Rule
    factor: float  # of the gradients

    @property
    def keys(self) -> tuple[int, int]:
        """Of the random numbers for state and values."""
        key = self.table.key
        return make_key(key, 2 * self.table.steps + 2), make_key(key, 0)


def new_state(table: Int8Rows) -> dict[str, Tensor]:
    """The state of a table that was not trained by this optimizer."""
    device = table.records.device
    return {
        "step": torch.zeros(1, dtype=torch.float64, device="cpu"),
        "unit": torch.zeros(1, dtype=torch.float64, device="cpu"),  # of second moments
        "squares": torch.zeros(NUM_GROUPS, table.dim, dtype=torch.float64, device=device),
        "visits": torch.zeros(NUM_GROUPS, dtype=torch.float64, device=device),
    }


def take_steps(steps: Sequence[RowStep]) -> None:
    """Admit ids and move rows, of all tables of a dimension in one call, and let scales follow the values."""
    by_dim: dict[tuple[int, bool], list[RowStep]] = {}
    eager = is_eager()
    for step in steps:
        table, pending = step.table, step.pending
        if pending.version != table.live.moves:
            pending.rows.copy_(table.find(pending.ids))
        if eager and table.can_loop:
            by_dim.setdefault((table.dim, table.shards is None), []).append(step)
        else:
            _step_plain(step)
            _look_after(table)
    for (dim, _), some in by_dim.items():
        if _step_in_loops(some, dim):
            for step in some:
                _look_after(step.table)


def _look_after(table: Int8Rows) -> None:
    """Fit the scale, put rows in order, and take some away, if it is time to."""
    if loops.is_due(table.steps):
        fit_scale(table)
    if table.is_crowded:
        table.compact()
    if table.sketch_width:
        age_sketch(table)
    if table.policy.max_rows or table.policy.time_to_live:
        make_space(table)


# -- compiled loops ----------------------------------------------------------------------------------------------------


def _step_in_loops(steps: Sequence[RowStep], dim: int) -> bool:
    """Whether a table must be looked after."""
    is_sharded = steps[0].table.shards is not None
    if is_sharded:
        _agree_on_units(steps)
    held = "squares", "visits", "step", "unit"
    packed = [(*(step.state[name].data_ptr() for name in held), *step.rule, step.factor) for step in steps]
    rules = np.array(packed, loops.RULE)
    work = np.empty((len(steps), 3), np.int64)
    work[:, 0] = [step.table.describe() for step in steps]
    work[:, 1] = [step.pending.address for step in steps]
    work[:, 2] = rules.ctypes.data + loops.RULE.itemsize * np.arange(len(steps))
    full = loops.find_full(work, 0)
    while full >= 0:
        steps[full].table.make_room(steps[full].pending.count)
        steps[full].table.describe()
        full = loops.find_full(work, full + 1)
    num_values = dim * sum(step.pending.count for step in steps)
    num_parts = min(len(steps), torch.get_num_threads()) if num_values >= PARALLEL else 1
    cuts, run = [len(steps) * index // num_parts for index in range(num_parts + 1)], RUNS[longest_run(dim)]
    due: list[bool] = []
    for part in (loops.ADMIT, loops.MOVE) if is_sharded else (loops.WHOLE,):
        parts = [(work, first, last, run, part) for first, last in pairwise(cuts)]
        with _summed_over_ranks(steps) if part == loops.ADMIT else nullcontext():
            parallel_for(lambda index: due.append(loops.step(*parts[index])), num_parts)  # noqa: B023  # ends in here
    for step in steps:  # ids have rows now that lookups of before the step did not find
        step.table.live.moves += 1
    return any(due)


# -- sharded tables ----------------------------------------------------------------------------------------------------


def _agree_on_units(steps: Sequence[RowStep]) -> None:
    """Find the units of sharded tables that have none, as `_step_plain` does, from the gradients of all ranks."""
    new = [step for step in steps if not step.state["unit"]]
    if not new:
        return
    found = torch.zeros(len(new), 2, dtype=torch.float64)
    for step, own in zip(new, found, strict=True):
        table, pending = step.table, step.pending
        left = waits(table, pending.ids, table.find(pending.ids))
        is_moved = left == 0
        is_moved |= wanted(table, pending.ids, table.needed - left, pending.occurrences, table.steps + 1)
        sums = pending.sums[is_moved] * torch.tensor(step.factor, dtype=torch.float32)
        own[0], own[1] = _sum_rows(sums.double().square()).sum(), sums.numel()
        table.levels.zero_()  # those of another optimizer
    for step, (total, count) in zip(new, sum_over_ranks(found, current_ranks()).tolist(), strict=True):
        step.state["unit"].fill_(2.0 ** math.frexp(total / count)[1] if total else 0.0)


@contextmanager
def _summed_over_ranks(steps: Sequence[RowStep]) -> Iterator[None]:
    """Let what a step adds to the sums of squares and visits of sharded tables be added by all ranks."""
    shards = steps[0].table.shards
    assert shards is not None
    held = [step.state[name] for step in steps for name in ("squares", "visits")]
    for tensor in held if shards.rank else []:
        tensor.zero_()  # rank 0 brings what there was
    yield
    total = sum_over_ranks(torch.cat([tensor.flatten() for tensor in held]), shards.ranks)
    for tensor, own in zip(held, torch.split(total, [tensor.numel() for tensor in held]), strict=True):
        tensor.copy_(own.view_as(tensor))


# -- the definition ----------------------------------------------------------------------------------------------------


def _step_plain(step: RowStep) -> None:
    if step.table.shards is not None:
        _agree_on_units([step])
    pending, factor, unit = step.pending, torch.tensor(step.factor, dtype=torch.float32), step.state["unit"]
    step.table.live.record["steps"] += 1
    step.state["step"] += 1
    if not unit:
        step.table.levels.zero_()  # those of another optimizer
    rows, shared = _admit(step)
    at = rows > 0
    rows, ids, occurrences = rows[at], pending.ids[at], pending.occurrences[at]
    sums = pending.sums[at]
    if shared is not None:
        pairs = zip((rows, ids, occurrences, sums), shared, strict=True)
        rows, ids, occurrences, sums = (torch.cat(pair) for pair in pairs)
    sums = sums * factor.to(sums.device)
    if not unit:
        mean = float(_sum_rows(sums.double().square()).sum()) / max(1, sums.numel())
        unit.fill_(2.0 ** math.frexp(mean)[1] if mean else 0.0)
    if (len(rows) or step.table.shards is not None) and unit:
        _move(step, rows, ids, occurrences, sums)


def _admit(step: RowStep) -> tuple[Tensor, tuple[Tensor, ...] | None]:
    """The rows of the ids, new ones included; what row 0 is moved by, if it is."""
    table, pending = step.table, step.pending
    rows = pending.rows.to(pending.ids.device)
    missing = rows == 0
    ids, counts = pending.ids[missing], pending.occurrences[missing]
    before = seen_before(table, ids)
    admitted = wanted(table, ids, before, counts, table.steps)
    has_room = admitted.cumsum(0) <= table.most_rows - table.num_rows
    table.live.record["demand"] = int(admitted.sum())
    table.live.record["admitted"] += int((admitted & has_room).sum())
    table.live.record["refused"] += int((admitted & ~has_room).sum())
    admitted &= has_room
    note_seen(table, ids, before, counts, admitted)
    table.give_rows(ids[admitted])
    rows = table.find(pending.ids).to(pending.ids.device)
    table.counts[rows[missing][admitted]] = _encode_counts(before[admitted].double(), torch.zeros(1, device=ids.device))
    if not table.trains_unseen or bool(admitted.all()):
        return rows, None
    sums = pending.sums[missing][~admitted]
    total = sums.new_zeros(1, table.dim).index_add_(0, torch.zeros_like(ids[~admitted]), sums)
    return rows, (ids.new_zeros(1), ids.new_full((1,), -1), counts[~admitted].sum().view(1), total)


def _move(step: RowStep, rows: Tensor, ids: Tensor, occurrences: Tensor, sums: Tensor) -> None:
    table, rule, (state_key, code_key) = step.table, step.rule, step.keys
    device, width = sums.device, table.dim
    groups = torch.from_numpy(loops.GROUPS).to(device)[table.counts[rows].long()]
    inverse, gain, shrink, typical = _rates(step, groups, sums)
    squares = torch.from_numpy(loops.LEVEL_VALUES).to(device)[table.levels[rows].long()].double() * rule.beta
    squares = squares + _sum_rows(sums.double().square() * inverse[groups]) / width * (1 - rule.beta)
    table.uses[rows] += 1
    level_noise, count_noise = uniform_pair(state_key, ids)
    counts = torch.from_numpy(loops.COUNT_VALUES).to(device)[table.counts[rows].long()] + occurrences
    table.counts[rows] = _encode_counts(counts, count_noise)
    table.stamp(rows)
    seen = squares > 0
    rows, ids, groups, sums, squares, counts = (each[seen] for each in (rows, ids, groups, sums, squares, counts))
    table.levels[rows] = _encode_levels(squares.float(), level_noise[seen])
    weight = 1 - rule.beta ** float(step.state["step"])
    speed = (weight * (1 + 1 / counts) / (squares + typical[groups])).sqrt().float().unsqueeze(1)
    often = (1 / (counts / table.steps).clamp(max=1.0)).float().unsqueeze(1)
    moved = table.codes[rows].float() - gain[groups] * speed * sums
    if rule.weight_decay:
        moved = 1 / (1 + shrink[groups] * (often * speed)) * moved
    codes = (moved + row_noise(code_key, ids, width, table.uses[rows])).floor_().clamp_(-LARGEST, LARGEST)
    table.codes[rows] = codes.to(torch.int8)
    record = table.live.record
    for squares_of_row in (codes.double().square().sum(1) / width).tolist():
        record["value_squares"] += squares_of_row
    record["value_count"] += len(rows)


def _rates(step: RowStep, groups: Tensor, sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a step depends on for each group and dimension.

    `1 / f` in the unit of `s`; values that a gradient of 1 moves a row by, where `s` is 1; decay, where `s` is 1; and
    what one typical gradient adds to `s`.
    """
    rule, unit = step.rule, float(step.state["unit"])
    squares, visits = step.state["squares"], step.state["visits"]
    with nullcontext() if step.table.shards is None else _summed_over_ranks([step]):
        squares.mul_(rule.beta).index_add_(0, groups, sums.double().square())
        visits.mul_(rule.beta).index_add_(0, groups, torch.ones_like(groups, dtype=torch.float64))
    mean = sum(squares.unbind(1), squares.new_zeros(len(squares))).unsqueeze(1) / squares.shape[1]
    seen, square = squares > 0, torch.where(squares > 0, squares / mean * unit, 0.0)
    root = square.sqrt() + rule.eps
    typical = torch.where(visits > 0, mean.squeeze(1) / visits / unit * (1 - rule.beta), 0.0)
    return (
        torch.where(seen, 1 / square, 0.0),
        torch.where(seen, rule.lr / (root * step.table.scale), 0.0).float(),
        torch.where(seen, rule.lr * rule.weight_decay / root, 0.0).float(),
        typical,
    )


def _sum_rows(values: Tensor) -> Tensor:
    """The sums of rows in the order of loops, which rounding depends on: the halves of each run are added."""
    total = values.new_zeros(len(values))
    for values_of_run in torch.split(values, longest_run(values.shape[1]), dim=1):
        rest = values_of_run
        while rest.shape[1] > 1:
            rest = torch.add(*rest.chunk(2, dim=1))
        total += rest.squeeze(1)
    return total


def _encode_levels(squares: Tensor, noise: Tensor) -> Tensor:
    """The byte of a second moment; it is rounded up if `noise`, in [0, 1), reaches beyond the next."""
    bits = squares.view(torch.int32).long() + (noise * (1 << loops.SHIFT)).long()
    return ((bits >> loops.SHIFT) - loops.OFFSET).clamp_(1, 255).to(torch.uint8)


def _encode_counts(counts: Tensor, noise: Tensor) -> Tensor:
    """The byte of a count: exact below 16, beyond it one of eight in an octave, rounded at random."""
    octave = torch.frexp(counts).exponent.long() - 4
    mantissa = (counts / torch.ldexp(torch.ones_like(counts), octave) + noise.double()).floor().long()
    return torch.where(counts < 16, counts.long(), octave * 8 + mantissa).clamp_(max=255).to(torch.uint8)


# -- scales ------------------------------------------------------------------------------------------------------------


def fit_scale(table: Int8Rows) -> bool:
    """Fit the scale to the values of rows that were moved lately, and round all again if it has moved far."""
    record = table.live.record
    found = torch.tensor([record["value_squares"][0], record["value_count"][0]], dtype=torch.float64)
    squares, count = (found if table.shards is None else sum_over_ranks(found, table.shards.ranks)).tolist()
    record["value_squares"] = record["value_count"] = 0.0
    ratio = HEADROOM / LARGEST * math.sqrt(squares / count) if count else 0.0
    if not ratio or 1 / MAY_MOVE <= ratio <= MAY_MOVE:
        return False
    table.compact()  # so that the order of rows is that of ids
    factor, key, first = np.float32(1 / ratio), make_key(table.key, 2 * table.steps + 4), 0
    for ids in chain([torch.tensor([-1])], table.map.ids()):  # row 0 has no id
        _rescale(table, slice(first, first := first + len(ids)), ids, factor, key)
    record["scale"] *= ratio
    return True


def _rescale(table: Int8Rows, rows: slice, ids: Tensor, factor: np.float32, key: int) -> None:
    if table.in_loops:
        arrays = table.records[rows].numpy(), table.dim, factor, np.uint64(key % 2**64), ids.contiguous().numpy()
        num_parts = 8 if len(ids) * table.dim >= PARALLEL else 1
        cuts = [len(ids) * index // num_parts for index in range(num_parts + 1)]
        parallel_for(lambda index: loops.rescale(*arrays, cuts[index], cuts[index + 1]), num_parts)
        return
    for codes, of in zip(torch.split(table.codes[rows], BLOCK), torch.split(ids, BLOCK), strict=True):
        places = of.to(codes.device).unsqueeze(1) * table.dim + torch.arange(table.dim, device=codes.device)
        moved = (codes.float() * float(factor) + uniform(key, places)).floor_()
        codes.copy_(moved.clamp_(-LARGEST, LARGEST))
