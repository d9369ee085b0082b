"""One step of int8 rows: Adam's rule, with a second moment of one byte a row.

Adam keeps a second moment for each value. Here it is a product, as in Adafactor (Shazeer and Stern, 2018): a factor `f`
for each frequency group and dimension, of mean 1, times a number `s` for each row, which follows its gradients `G`:

    s ← β s + (1 - β) · mean over dimensions of G² / f,    step = lr · G / √(f · s / (1 - β^t))

`s` is followed when a row has a gradient, and divided by the weight of all steps, as by Adam. So the first step of an
id that is seen late is `lr · √((1 - β^t) / (1 - β))`, up to 31 times `lr`, whatever the size of its gradient, and later
ones are smaller. One byte holds `s`: 64 powers of two in four parts each, rounded at random. A second byte counts steps
of the row, so that values are rounded by `spread` numbers, and a third how often its id occurred: the frequency group
is the octave of that count.

Weight decay is that of `torch.optim.Adam` with dense gradients: it counts for every step, seen or not, so that a row
gets the decay of all steps since it was last seen, `1 / p` of them, where `p` is how often its id occurs in a step. It
is divided by the same root, but that of a typical gradient at least: a row whose first gradient is next to nothing
would lose its values to it.

    u = (T - lr · G / √v) / (1 + lr · weight_decay / (p · √v)),    value = round(u / scale)

Plain torch is the definition, and compiled loops give the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cce.compiled import parallel_for
from cce.indexing import blocks, make_key, spread, uniform, uniform_row
from cce.kernels import training_rows as loops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cce.embeddings import Int8Rows, Pending

LARGEST, NUM_GROUPS = loops.LARGEST, loops.NUM_GROUPS
REFIT_EVERY = 256  # steps after which scales follow the values; they do so more often at first
HEADROOM = 6  # the largest value stands for so many times the root mean square of values, by how often they are seen
MAY_MOVE = 1.25  # by which a scale may be off before values are rounded again
BLOCK = 1 << 16  # rows at a time
GRADIENTS = (loops.IDS, loops.ROWS, loops.OCCURRENCES, loops.SUMS)
PARALLEL = 1 << 17  # values below which threads cost more than they save


class Rule(NamedTuple):
    """The settings of a step."""

    lr: float
    weight_decay: float
    beta: float
    eps: float


@dataclass
class RowStep:
    """A table, the optimizer's state of it, and the gradients of a step."""

    table: Int8Rows
    state: dict[str, Any]
    pending: Pending
    rule: Rule
    factor: float  # of the gradients

    def numbers(self) -> list[float]:
        """The numbers that loops read."""
        rule, live = self.rule, self.table.live
        weight = 1 - rule.beta ** int(self.state["step"])
        given = [live.scale, rule.lr, rule.weight_decay, rule.beta, rule.eps, weight, self.state["unit"]]
        return [*given, self.factor, self.table.bound, live.steps, live.value_squares, live.value_count]

    @property
    def keys(self) -> list[int]:
        """Of the random numbers for second moments, values, counts and new rows."""
        key, step = self.table.key, self.table.steps
        return [make_key(key, 2 * step + 2), make_key(key, 0), make_key(key, 2 * step + 3), self.table.init_key]


def new_state(table: Int8Rows) -> dict[str, Any]:
    """The state of a table that was not trained by this optimizer."""
    device = table.records.device
    return {
        "step": torch.tensor(0.0),
        "unit": 0.0,
        "squares": torch.zeros(NUM_GROUPS, table.dim, dtype=torch.float64, device=device),
        "visits": torch.zeros(NUM_GROUPS, dtype=torch.float64, device=device),
    }


def take_steps(steps: Sequence[RowStep]) -> None:
    """Admit ids and move rows, of all tables in one call, and let scales follow the values."""
    for step in steps:
        if step.state["unit"] == 0:
            step.table.levels.zero_()  # those of another optimizer
        step.state["step"] += 1
        step.table.live.steps += 1
        if step.pending.version != step.table.moves:
            step.pending.rows.copy_(step.table.find(step.pending.ids))
    in_loops = [step for step in steps if step.table.in_loops]
    if in_loops:
        _step_in_loops(in_loops)
    for step in steps:
        if not step.table.in_loops:
            _step_plain(step)
        if _is_due(step.table.steps):
            fit_scale(step.table)
        if step.table.is_crowded:
            step.table.compact()


# -- compiled loops ----------------------------------------------------------------------------------------------------


def _step_in_loops(steps: Sequence[RowStep]) -> None:
    lines = np.array([step.table.line() for step in steps])
    num_ids = np.array([step.pending.count for step in steps])
    lines[:, loops.NUM_ROWS] = [step.table.live.num_rows for step in steps]
    for index in _lacking_room(lines, num_ids):
        steps[index].table.make_room(int(num_ids[index]))
        lines[index] = steps[index].table.line()
        lines[index, loops.NUM_ROWS] = steps[index].table.num_rows
    lines[:, loops.NUM_IDS] = num_ids
    lines[:, [loops.SQUARES, loops.VISITS, *GRADIENTS]] = [_addresses(step) for step in steps]
    numbers = np.array([step.numbers() for step in steps], np.float64)
    num_parts = min(len(steps), torch.get_num_threads()) if num_ids.sum() * lines[0, loops.DIM] >= PARALLEL else 1
    cuts = [len(steps) * index // num_parts for index in range(num_parts + 1)]
    parallel_for(lambda index: loops.step(lines, numbers, cuts[index], cuts[index + 1]), num_parts)
    for step, num_rows, number in zip(steps, lines[:, loops.NUM_ROWS].tolist(), numbers.tolist(), strict=True):
        live = step.table.live
        live.num_rows, step.state["unit"] = num_rows, number[loops.UNIT]
        live.value_squares, live.value_count = number[loops.VALUE_SQUARES], number[loops.VALUE_COUNT]


def _lacking_room(lines: Any, num_ids: Any) -> list[int]:
    """Tables that could not give a row to each of these ids as they are."""
    num_rows, most = lines[:, loops.NUM_ROWS], lines[:, loops.NUM_EMBEDDINGS] + 1
    recent = num_rows - 1 - lines[:, loops.NUM_MAPPED] + np.minimum(num_ids, most - num_rows)
    is_full = np.minimum(num_rows + num_ids, most) > lines[:, loops.CAPACITY]
    found: list[int] = np.flatnonzero(is_full | (4 * recent > 3 * lines[:, loops.RECENT_SIZE])).tolist()
    return found


def _addresses(step: RowStep) -> list[int]:
    return [step.state["squares"].data_ptr(), step.state["visits"].data_ptr(), *step.pending.addresses()]


# -- the definition ----------------------------------------------------------------------------------------------------


def _step_plain(step: RowStep) -> None:
    pending, factor = step.pending, torch.tensor(step.factor, dtype=torch.float32)
    rows, shared = _admit(step)
    at = rows > 0
    rows, ids, occurrences = rows[at], pending.ids[at], pending.occurrences[at]
    sums = pending.sums[at]
    if shared is not None:
        pairs = zip((rows, ids, occurrences, sums), shared, strict=True)
        rows, ids, occurrences, sums = (torch.cat(pair) for pair in pairs)
    sums = sums * factor.to(sums.device)
    if not step.state["unit"]:
        mean = float(_sum_rows(sums.double().square()).sum()) / max(1, sums.numel())
        step.state["unit"] = 2.0 ** math.frexp(mean)[1] if mean else 0.0
    if len(rows) and step.state["unit"]:
        _move(step, rows, ids, occurrences, sums)


def _admit(step: RowStep) -> tuple[Tensor, tuple[Tensor, ...] | None]:
    """The rows of the ids, new ones included; what row 0 is moved by, if it is."""
    table, pending = step.table, step.pending
    rows = pending.rows.to(pending.ids.device)
    missing = rows == 0
    ids, counts = pending.ids[missing], pending.occurrences[missing]
    before = table.seen_before(ids)
    admitted = before + counts >= table.needed
    if table.seen_bits:
        _add_seen(table, ids, torch.where(admitted, -before, counts))
    table.give_rows(ids[admitted])
    rows = table.find(pending.ids).to(pending.ids.device)
    table.counts[rows[missing][admitted]] = _encode_counts(before[admitted].double(), torch.zeros(1, device=ids.device))
    if not table.trains_unseen or bool(admitted.all()):
        return rows, None
    sums = pending.sums[missing][~admitted]
    total = sums.new_zeros(1, table.dim).index_add_(0, torch.zeros_like(ids[~admitted]), sums)
    return rows, (ids.new_zeros(1), ids.new_full((1,), -1), counts[~admitted].sum().view(1), total)


def _move(step: RowStep, rows: Tensor, ids: Tensor, occurrences: Tensor, sums: Tensor) -> None:
    table, rule, (level_key, code_key, count_key, _) = step.table, step.rule, step.keys
    device, width = sums.device, table.dim
    groups = torch.from_numpy(loops.GROUPS).to(device)[table.counts[rows].long()]
    inverse, gain, shrink, least = _rates(step, groups, sums)
    squares = torch.from_numpy(loops.LEVEL_VALUES).to(device)[table.levels[rows].long()].double() * rule.beta
    squares = squares + _sum_rows(sums.double().square() * inverse[groups]) / width * (1 - rule.beta)
    table.uses[rows] += 1
    counts = torch.from_numpy(loops.COUNT_VALUES).to(device)[table.counts[rows].long()] + occurrences
    table.counts[rows] = _encode_counts(counts, uniform(count_key, ids))
    seen = squares > 0
    rows, ids, groups, sums, squares, counts = (each[seen] for each in (rows, ids, groups, sums, squares, counts))
    table.levels[rows] = _encode_levels(squares.float(), uniform(level_key, ids))
    weight = 1 - rule.beta ** int(step.state["step"])
    speed = (weight / squares).sqrt().float().unsqueeze(1)
    often = (1 / (counts / table.steps).clamp(max=1.0)).float().unsqueeze(1)
    pull = often * (weight / squares.maximum(least[groups])).sqrt().float().unsqueeze(1)
    moved = table.codes[rows].float() - gain[groups] * speed * sums
    if rule.weight_decay:
        moved = 1 / (1 + shrink[groups] * pull) * moved
    noise = spread(uniform_row(code_key, ids, width), table.uses[rows].unsqueeze(1))
    codes = (moved + noise).floor_().clamp_(-LARGEST, LARGEST)
    table.codes[rows] = codes.to(torch.int8)
    for squares_of_row in (_sum_rows(codes.double().square()) / width).tolist():
        table.live.value_squares += squares_of_row
    table.live.value_count += len(rows)


def _rates(step: RowStep, groups: Tensor, sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a step depends on for each group and dimension.

    `1 / f` in the unit of `s`; values that a gradient of 1 moves a row by, where `s` is 1; decay, where `s` is 1; and
    the `s` of a row after one typical gradient.
    """
    rule, unit = step.rule, step.state["unit"]
    squares, visits = step.state["squares"].mul_(rule.beta), step.state["visits"].mul_(rule.beta)
    squares.index_add_(0, groups, sums.double().square())
    visits.index_add_(0, groups, torch.ones_like(groups, dtype=torch.float64))
    mean = _sum_rows(squares).unsqueeze(1) / squares.shape[1]
    seen, square = squares > 0, torch.where(squares > 0, squares / mean * unit, 0.0)
    root = square.sqrt() + rule.eps
    least = torch.where(visits > 0, mean.squeeze(1) / visits / unit * (1 - rule.beta), 0.0)
    return (
        torch.where(seen, 1 / square, 0.0),
        torch.where(seen, rule.lr / (root * step.table.scale), 0.0).float(),
        torch.where(seen, rule.lr * rule.weight_decay / root, 0.0).float(),
        least,
    )


def _sum_rows(values: Tensor) -> Tensor:
    """In the order of loops, which rounding depends on."""
    total = values.new_zeros(len(values))
    for column in values.unbind(1):
        total += column
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


def _add_seen(table: Int8Rows, ids: Tensor, counts: Tensor) -> None:
    """Add to counts of distinct ids, none of which leaves its bits."""
    bit = ids * table.seen_bits
    table.seen.index_add_(0, bit >> 3, (counts << (bit & 7)).to(torch.uint8))  # modulo 256: what is taken away is


# -- scales ------------------------------------------------------------------------------------------------------------


def fit_scale(table: Int8Rows) -> bool:
    """Fit the scale to the values of rows that were moved lately, and round all again if it has moved far."""
    live = table.live
    squares, count = live.value_squares, live.value_count
    live.value_squares = live.value_count = 0.0
    ratio = HEADROOM / LARGEST * math.sqrt(squares / count) if count else 0.0
    if not ratio or 1 / MAY_MOVE <= ratio <= MAY_MOVE:
        return False
    table.compact()  # so that the order of rows is that of ids
    factor, key = np.float32(1 / ratio), make_key(table.key, 2 * table.steps + 4)
    if table.in_loops:
        records = table.records[: table.num_rows].numpy()
        rescale = partial(loops.rescale, records, factor, np.uint64(key % 2**64))
        cuts = [table.num_rows * index // 8 for index in range(9)]
        parallel_for(lambda index: rescale(cuts[index], cuts[index + 1]), 8)
    else:
        _rescale_plain(table, float(factor), key)
    live.scale *= ratio
    return True


def _rescale_plain(table: Int8Rows, factor: float, key: int) -> None:
    for block in blocks(table.num_rows, BLOCK):
        rows = block.to(table.records.device)
        places = rows.unsqueeze(1) * table.dim + torch.arange(table.dim, device=rows.device)
        moved = (table.codes[rows].float() * factor + uniform(key, places)).floor_()
        table.codes[rows] = moved.clamp_(-LARGEST, LARGEST).to(torch.int8)


def _is_due(step: int) -> bool:
    """Every so many steps, and at powers of two before."""
    return step % REFIT_EVERY == 0 or (step < REFIT_EVERY and step & (step - 1) == 0)
